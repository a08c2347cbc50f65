"""The manager's configuration file: defaults, strictness, errors that help."""

from __future__ import annotations

import itertools
import math
import ssl
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from tests.unit.docs.configuration_table import fields

from kueuelib.app.configuration import Configuration
from kueuelib.app.configuration_reading import API_VERSIONS, load_configuration, parse_configuration
from kueuelib.app.decision_settings import engine_settings
from kueuelib.app.decoding import KeyRule, parse_duration, rule_of
from kueuelib.app.part_settings import job_settings
from kueuelib.errors import ConfigError
from kueuelib.jobs.builtin import builtin_registry
from kueuelib.runtime.addresses import parse_address
from kueuelib.scheduler.quota.past_usage import UsageRule

FINAL, INITIAL = "LessThanOrEqualToFinalShare", "LessThanInitialShare"
FRAMEWORKS = sorted(builtin_registry().names())
HEAD = {"apiVersion": "config.kueue.x-k8s.io/v1beta1", "kind": "Configuration"}


def parse(**content: Any) -> Configuration:
    return parse_configuration({**HEAD, **content}, "config.yaml")


def test_no_file_means_all_defaults() -> None:
    found = load_configuration(None)
    assert found.webhook.port == 9443
    assert found.metrics.bind_address == ":8443"
    assert found.integrations.frameworks == ("batch/job",)
    assert found.leader_election.leader_elect


def test_every_field_is_read(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(
        """
apiVersion: config.kueue.x-k8s.io/v1beta1
kind: Configuration
namespace: queues
health: {healthProbeBindAddress: "127.0.0.1:1", readinessEndpointName: /ready}
metrics: {bindAddress: "0", enableClusterQueueResources: true}
webhook: {port: 9, host: 127.0.0.1}
leaderElection: {leaderElect: false, leaseDuration: 1m30s}
manageJobsWithoutQueueName: true
clientConnection: {qps: 50, burst: 100}
controller: {groupKindConcurrency: {Job.batch: 5, Pod: 3}}
integrations:
  frameworks: [batch/job]
  podOptions: {namespaceSelector: {matchLabels: {a: b}}}
"""
    )
    found = load_configuration(path)
    assert found.manager_namespace == "queues"
    assert found.health.readiness_endpoint_name == "/ready"
    assert found.metrics.enable_cluster_queue_resources
    assert (found.webhook.host, found.webhook.port) == ("127.0.0.1", 9)
    assert found.leader_election.lease_duration == 90
    assert found.manage_jobs_without_queue_name
    assert (found.client_connection.qps, found.client_connection.burst) == (50.0, 100)
    assert found.controller.group_kind_concurrency == {"Job.batch": 5, "Pod": 3}
    assert found.integrations.pod_options.namespace_selector == {"matchLabels": {"a": "b"}}


@pytest.mark.parametrize(
    ("content", "want"),
    [
        ({"webook": {}}, ["unknown key webook", "did you mean webhook?"]),
        ({"webhook": {"prot": 1}}, ["unknown key webhook.prot", "did you mean port?"]),
        ({"webhook": {"port": "9443"}}, ["webhook.port must be a whole number, not '9443'"]),
        ({"webhook": {"port": True}}, ["webhook.port must be a whole number, not True"]),
        ({"webhook": []}, ["webhook must be a mapping"]),
        ({"leaderElection": {"leaseDuration": 15}}, ["leaseDuration must be a duration"]),
        ({"leaderElection": {"leaseDuration": "5 min"}}, ["must be a duration, not '5 min'"]),
        ({"leaderElection": {"leaderElect": "no"}}, ["leaderElect must be true or false"]),
        ({"integrations": {"frameworks": "batch/job"}}, ["frameworks must be a list"]),
        (
            {"integrations": {"frameworks": ["batch/jobs"]}},
            ["frameworks[0]", f"use one of {', '.join(FRAMEWORKS)}"],
        ),
        ({"integrations": {"frameworks": ["kubeflow.org/mxjob"]}}, ["not available"]),
        (
            {
                "integrations": {
                    "frameworks": ["deployment"],
                    "podOptions": {"namespaceSelector": {"matchExpressions": []}},
                }
            },
            ["integrations.podOptions.namespaceSelector matches the namespace kube-system"],
        ),
        (
            {"managedJobsNamespaceSelector": {}},
            ["managedJobsNamespaceSelector matches the namespace kube-system", "NotIn"],
        ),
        (
            {
                "namespace": "queues",
                "managedJobsNamespaceSelector": {
                    "matchLabels": {"kubernetes.io/metadata.name": "queues"}
                },
            },
            ["managedJobsNamespaceSelector matches the namespace queues"],
        ),
        (
            {"waitForPodsReady": {"enable": True, "requeuingStrategy": {"timestamp": "Now"}}},
            ["requeuingStrategy.timestamp is 'Now'", "Eviction or Creation"],
        ),
        (
            {"waitForPodsReady": {"enable": True, "requeuingStrategy": {"backoffLimitCount": -1}}},
            ["backoffLimitCount is -1"],
        ),
        ({"integrations": {"externalFrameworks": ["Foo"]}}, ["[0]", "Kind.version.group"]),
        ({"integrations": {"labelKeysToCopy": ["a b"]}}, ["labelKeysToCopy[0]"]),
        (
            {"managedJobsNamespaceSelector": {"matchExpressions": [{"key": "a"}]}},
            ["managedJobsNamespaceSelector"],
        ),
        (
            {"fairSharing": {"preemptionStrategies": [INITIAL, FINAL]}},
            [
                f"fairSharing.preemptionStrategies is [{INITIAL}, {FINAL}]",
                f"write one of [{FINAL}], [{INITIAL}], [{FINAL}, {INITIAL}]",
            ],
        ),
        ({"fairSharing": {"preemptionStrategies": ["Least"]}}, ["[Least]"]),
        (
            {"admissionFairSharing": {"usageSamplingInterval": "0"}},
            ["admissionFairSharing.usageSamplingInterval is 0", "5m"],
        ),
        (
            {"admissionFairSharing": {"usageHalfLifeTime": "-1m"}},
            ["admissionFairSharing.usageHalfLifeTime must be a duration"],
        ),
        (
            {"admissionFairSharing": {"resourceWeights": {"cpu": -1}}},
            ["admissionFairSharing.resourceWeights[cpu] is -1.0"],
        ),
        (
            {"admissionFairSharing": {"resourceWeights": {"cpu": math.nan}}},
            ["resourceWeights[cpu] is nan"],
        ),
        (
            {"admissionFairSharing": {"usageHalfLife": "168h"}},
            ["unknown key admissionFairSharing.usageHalfLife", "usageHalfLifeTime"],
        ),
        ({"multiKueue": {"origin": "a"}}, ["multiKueue is not available"]),
        (
            {"queueVisibility": {"updateIntervalSeconds": 9}},
            ["queueVisibility: the status"],
        ),
        (
            {"queueVisibility": {"clusterQueues": {"maxCount": 5}}},
            ["queueVisibility: the status"],
        ),
        ({"controller": {"groupKindConcurrency": {"Pod": 0}}}, ["[Pod] is 0"]),
        (
            {"integrations": {"podOptions": {"podSelector": {"matchExpressions": [{"key": "a"}]}}}},
            ["integrations.podOptions.podSelector"],
        ),
    ],
)
def test_a_mistake_names_the_file_the_key_and_the_fix(content: Any, want: list[str]) -> None:
    with pytest.raises(ConfigError) as error:
        parse(**content)
    for text in ["config.yaml", *want]:
        assert text in str(error.value)


def test_a_list_of_waiting_workloads_may_be_turned_off() -> None:
    off = {"updateIntervalSeconds": 5, "clusterQueues": {"maxCount": 0}}
    assert parse(queueVisibility=off).queue_visibility is not None


# ---- v1beta2


def parse_new(**content: Any) -> Configuration:
    head = {**HEAD, "apiVersion": "config.kueue.x-k8s.io/v1beta2"}
    return parse_configuration({**head, **content}, "config.yaml")


def test_in_v1beta2_a_block_turns_its_feature_on() -> None:
    found = parse_new(waitForPodsReady={"timeout": "1m"}, metrics={"bindAddress": "0"})
    assert found.wait_for_pods_ready is not None
    assert found.wait_for_pods_ready.enable
    assert found.wait_for_pods_ready.timeout == 60
    assert not found.wait_for_pods_ready.blocks
    assert found.metrics.bind_address == "0"
    assert parse_new().wait_for_pods_ready is None
    recovery = {"timeout": "1m", "recoveryTimeout": "0s"}
    endless = parse_new(waitForPodsReady=recovery)
    assert endless.wait_for_pods_ready is not None
    assert endless.wait_for_pods_ready.policy.recovery_timeout is None
    assert not job_settings(endless).pods_ready_recovery
    blocking = parse_new(waitForPodsReady={"timeout": "1m", "blockAdmission": True})
    assert blocking.wait_for_pods_ready is not None
    assert blocking.wait_for_pods_ready.blocks


@pytest.mark.parametrize(
    ("content", "want"),
    [
        ({"fairSharing": {}}, ["fairSharing.preemptionStrategies is missing", f"[{FINAL}]"]),
        ({"fairSharing": {"enable": True}}, ["fairSharing.enable is not a key", "remove the key"]),
        ({"fairSharing": {"preemptionStrategies": [INITIAL, INITIAL]}}, ["write one of"]),
        ({"fairSharing": []}, ["fairSharing must be a mapping"]),
        ({"waitForPodsReady": {}}, ["waitForPodsReady.timeout is missing", "5m"]),
        ({"waitForPodsReady": {"enable": False}}, ["waitForPodsReady.enable is not a key"]),
        ({"queueVisibility": {}}, ["queueVisibility is not a key"]),
    ],
)
def test_a_mistake_in_v1beta2_names_the_key_and_the_fix(content: Any, want: list[str]) -> None:
    with pytest.raises(ConfigError) as error:
        parse_new(**content)
    for text in ["config.yaml", *want]:
        assert text in str(error.value)


def test_fair_sharing_is_on_where_the_version_says_so() -> None:
    def strategies(found: Configuration) -> tuple[str, ...] | None:
        sharing = engine_settings(found).fair_sharing
        return None if sharing is None else sharing.strategies

    assert strategies(parse()) is None
    assert strategies(parse(fairSharing={"preemptionStrategies": [INITIAL]})) is None
    assert strategies(parse(fairSharing={"enable": True})) == (FINAL, INITIAL)
    only = {"preemptionStrategies": [INITIAL]}
    assert strategies(parse(fairSharing={"enable": True, **only})) == (INITIAL,)
    found = parse_new(fairSharing=only, waitForPodsReady={"timeout": "1m", "blockAdmission": True})
    assert strategies(found) == (INITIAL,)
    assert engine_settings(found).block_admission


@pytest.mark.parametrize("read", [parse, parse_new])
def test_past_usage_counts_where_the_block_is(read: Callable[..., Configuration]) -> None:
    assert engine_settings(read()).past_usage is None
    found = engine_settings(read(admissionFairSharing={})).past_usage
    assert found == UsageRule(half_life=0.0, interval=300.0)
    block = {
        "usageHalfLifeTime": "168h",
        "usageSamplingInterval": "30s",
        "resourceWeights": {"cpu": 2, "memory": 0.1},
    }
    weights = {"cpu": Fraction(2), "memory": Fraction(1, 10)}
    found = engine_settings(read(admissionFairSharing=block)).past_usage
    assert found == UsageRule(604800.0, 30.0, weights)


@pytest.mark.parametrize("head", [{}, {**HEAD, "kind": "Config"}, {**HEAD, "apiVersion": "v1"}])
def test_the_kind_is_checked(head: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="config.yaml: (kind|apiVersion) is not"):
        parse_configuration(head, "config.yaml")


@pytest.mark.parametrize(
    ("version", "newer"),
    [
        *((name, True) for name in ("v1beta3", "v1", "v2alpha1", "v1beta10")),
        *((name, False) for name in ("v1alpha1", "v1beta0", "beta3", "")),
    ],
)
def test_a_version_of_later_is_not_called_a_mistake(version: str, newer: bool) -> None:
    head = {**HEAD, "apiVersion": f"config.kueue.x-k8s.io/{version}"}
    with pytest.raises(ConfigError) as error:
        parse_configuration(head, "config.yaml")
    assert ("is newer than this version of kueuelib understands" in str(error.value)) is newer
    assert ("apiVersion is not" in str(error.value)) is not newer


@pytest.mark.parametrize("content", [None, [], "text"])
def test_a_file_that_is_no_mapping_is_refused(content: Any) -> None:
    with pytest.raises(ConfigError, match="is not a mapping"):
        parse_configuration(content, "config.yaml")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="absent.yaml: No such file"):
        load_configuration(tmp_path / "absent.yaml")
    binary = tmp_path / "binary.yaml"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="binary.yaml: is not UTF-8 text"):
        load_configuration(binary)


def test_malformed_yaml_names_the_line(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("kind: Configuration\n  bad: [")
    with pytest.raises(ConfigError, match="malformed YAML in line"):
        load_configuration(path)


@pytest.mark.parametrize(
    ("text", "seconds"), [("0", 0), ("5m", 300), ("1h1m1s", 3661), ("1.5s", 1.5), ("250ms", 0.25)]
)
def test_go_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "5", "m", "5m ", "-5m", "5 m"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        parse_duration(text)


def test_addresses() -> None:
    assert parse_address(":8080", "metrics") == ("", 8080)
    assert parse_address("127.0.0.1:1", "metrics") == ("127.0.0.1", 1)
    assert parse_address("[::1]:443", "metrics") == ("::1", 443)
    with pytest.raises(ConfigError, match="is not an address"):
        parse_address("8080", "metrics")


@pytest.mark.parametrize(
    ("content", "want"),
    [
        ({"namespace": "Bad_Name"}, "namespace"),
        ({"clientConnection": {"qps": 0}}, "clientConnection.qps is 0"),
        ({"clientConnection": {"burst": 0}}, "clientConnection.burst is 0"),
        ({"integrations": {"frameworks": []}}, "integrations.frameworks is empty"),
    ],
)
def test_values_that_cannot_work_are_refused(content: Any, want: str) -> None:
    with pytest.raises(ConfigError, match="config.yaml") as error:
        parse(**content)
    assert want in str(error.value)


WRONG = (-1, 0, 10**6, "Other", {"matchExpressions": [{"key": "a", "operator": "Other"}]})


@pytest.mark.parametrize(
    ("path", "rule"),
    [(path, rule) for path, field in fields(Configuration) if (rule := rule_of(field))],
)
def test_a_value_that_breaks_the_rule_of_its_key_is_refused(path: str, rule: KeyRule) -> None:
    refused = []
    for wrong, version in itertools.product(WRONG, API_VERSIONS):
        content: Any = wrong
        for name in reversed(path.split(".")):
            content = {name: content}
        if "waitForPodsReady" in content:
            content["waitForPodsReady"]["timeout"] = "1m"
        try:
            parse_configuration({**HEAD, "apiVersion": version, **content}, "config.yaml")
        except ConfigError as error:
            if path in error.problem and error.fix == rule.fix:
                refused.append(wrong)
    assert refused


def test_the_visibility_server_is_off_unless_its_block_is_there(tmp_path: Path) -> None:
    assert Configuration().visibility_server is None
    path = tmp_path / "config.yaml"
    head = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n"
    path.write_text(f"{head}visibilityServer: {{}}\n")
    found = load_configuration(path).visibility_server
    assert found is not None
    assert (found.bind_address, found.bind_port) == ("0.0.0.0", 8082)
    path.write_text(f"{head}visibilityServer: {{bindPort: 0}}\n")
    with pytest.raises(ConfigError, match=r"visibilityServer\.bindPort is 0"):
        load_configuration(path)


def test_rules_about_resources_are_read() -> None:
    found = parse(
        resources={
            "excludeResourcePrefixes": ["example.com/"],
            "transformations": [
                {"input": "gpu", "multiplyBy": "cpu", "outputs": {"credits": 10, "memory": "5Gi"}},
                {"input": "noise", "strategy": "Replace"},
            ],
        }
    )
    rules = engine_settings(found).resources
    assert rules.excluded_prefixes == ("example.com/",)
    gpu, noise = rules.transformations["gpu"], rules.transformations["noise"]
    assert (gpu.retain, gpu.multiply_by) == (True, "cpu")
    assert {name: str(amount) for name, amount in gpu.outputs.items()} == {
        "credits": "10",
        "memory": "5Gi",
    }
    assert (noise.retain, dict(noise.outputs)) == (False, {})
    assert rules.generated == {"credits", "memory"}
    assert not rules.ignores_undeclared
    loose = parse_new(resources={"quotaCheckStrategy": "IgnoreUndeclared"})
    assert engine_settings(loose).resources.ignores_undeclared


@pytest.mark.parametrize(
    ("resources", "want"),
    [
        ({"quotaCheckStrategy": "Ignore"}, ["quotaCheckStrategy is 'Ignore'", "BlockUndeclared"]),
        (
            {"quotaCheckStrategy": "IgnoreUndeclared", "excludeResourcePrefixes": ["a"]},
            ["excludeResourcePrefixes cannot be combined with IgnoreUndeclared", "remove"],
        ),
        ({"excludeResourcePrefixes": ["a", ""]}, ["excludeResourcePrefixes[1] is empty"]),
        ({"transformations": [{"outputs": {}}]}, ["transformations[0].input is missing"]),
        ({"transformations": [{"input": "a"}, {"input": "a"}]}, ["a has more than one"]),
        ({"transformations": [{"input": "a", "strategy": "Drop"}]}, ["Retain or Replace"]),
        ({"transformations": [{"input": "a", "outputs": {"pods": 1}}]}, ["pods is counted"]),
        (
            {"transformations": [{"input": "a", "outputs": {"b": "5Q"}}]},
            [
                "transformations[0].outputs[b]: '5Q' is not a quantity",
                "write a number with an optional",
            ],
        ),
        ({"deviceClassMappings": []}, ["resources.deviceClassMappings is not available"]),
    ],
)
def test_rules_about_resources_that_cannot_work_are_refused(
    resources: dict[str, Any], want: list[str]
) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_new(resources=resources)
    for part in want:
        assert part in str(refused.value)


@pytest.mark.parametrize(
    ("content", "want"),
    [
        ({"minVersion": "VersionTLS11"}, ["tls.minVersion is 'VersionTLS11'", "VersionTLS12 or"]),
        (
            {"cipherSuites": ["TLS_RSA_WITH_RC4_128_SHA"]},
            ["tls.cipherSuites[0]: 'TLS_RSA_WITH_RC4_128_SHA'", "TLS_ECDHE_ECDSA_WITH_AES_128"],
        ),
        (
            {
                "minVersion": "VersionTLS13",
                "cipherSuites": ["TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"],
            },
            ["tls.cipherSuites has no effect", "remove"],
        ),
        ({"cipherSuites": ["TLS_AES_128_GCM_SHA256"]}, ["no suite of TLS 1.2", "VersionTLS13"]),
        ({"curvePreferences": [29]}, ["tls.curvePreferences is not available"]),
    ],
)
def test_tls_that_is_not_safe_or_has_no_effect_is_refused(
    content: dict[str, Any], want: list[str]
) -> None:
    with pytest.raises(ConfigError) as refused:
        parse(tls=content)
    for part in want:
        assert part in str(refused.value)


def test_tls_names_the_version_and_the_suites_of_the_servers() -> None:
    suites = ["TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256"]
    context = parse(tls={"minVersion": "VersionTLS12", "cipherSuites": suites}).tls.context()
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2
    of_tls12 = [one["name"] for one in context.get_ciphers() if not one["name"].startswith("TLS_")]
    assert of_tls12 == ["ECDHE-ECDSA-CHACHA20-POLY1305"]
    assert parse(tls={"minVersion": "VersionTLS13"}).tls.context().minimum_version is (
        ssl.TLSVersion.TLSv1_3
    )


def test_certificates_from_elsewhere_have_a_folder() -> None:
    mine = parse(internalCertManagement={"enable": False}, webhook={"certDir": "/certs"})
    assert mine.webhook.certificate_folder == Path("/certs")
    usual = parse(internalCertManagement={"enable": False}).webhook.certificate_folder
    assert usual.parts[-2:] == ("k8s-webhook-server", "serving-certs")
    with pytest.raises(ConfigError, match=r"webhook\.certDir is not read while"):
        parse(webhook={"certDir": "/certs"})


def test_known_keys_are_those_that_work(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    head = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n"
    file.write_text(f"{head}zzz: 1\n")
    with pytest.raises(ConfigError, match="known keys: ") as refused:
        load_configuration(file)
    assert "multiKueue" not in refused.value.fix
    assert "metrics" in refused.value.fix
