"""Commands that fit the installation: how a manager is started, looked at and installed again."""

from __future__ import annotations

import copy
import os
import shlex
from typing import Any

import attrs
import pytest
import yaml
from click.testing import CliRunner
from tests.unit.app.doctor.test_findings import (
    CASES,
    MUTATING,
    OTHER_APIS,
    VISIBILITY,
    ask_for_visibility,
    break_the_calls,
    convert_elsewhere,
    convert_nothing,
    deny,
    die,
    keep_the_pods_of_before,
    lead,
    lead_with_old_values,
    leave_an_api_behind,
    lose_a_configuration,
    lose_a_definition,
    lose_a_field,
    lose_the_account,
    lose_the_lease,
    register,
    stop_serving,
)

from kueuelib.api.meta import format_time
from kueuelib.app.configuration import CONFIG_FILE, CONFIG_MAP, Configuration
from kueuelib.app.deployment import CONFIGURATION, Deployed
from kueuelib.app.doctor.snapshot import WebhookProbe
from kueuelib.app.running_configuration import PUBLISHED, published
from kueuelib.cli.syntax import app


@pytest.mark.parametrize("make_ill", [one[0] for one in CASES])
def test_no_command_looks_for_pods_of_a_manager_that_runs_elsewhere(
    outside: Any, make_ill: Any
) -> None:
    assert outside.found() == []
    make_ill(outside)
    for _, found in outside.found():
        assert not any(word in found.fix for word in ("pods,", "deployment/", "rollout")), found.fix
        if found.fix.startswith("kueuelib install"):
            assert found.fix.startswith("kueuelib install --webhook-url https://")


THERE = "on the machine that https://127.0.0.1:9443 names, or start your own manager there"
OWN = "--kubeconfig KUBECONFIG  # the manager's own"
STARTED = f"kueuelib manager --config FILE {OWN}, {THERE}; first end one that hangs"


def test_a_manager_that_runs_elsewhere_is_started_there(outside: Any) -> None:
    die(outside)
    assert outside.only("leader").fix == STARTED
    lead(outside)
    lead_with_old_values(outside)
    fix = "restart the manager on the machine that https://127.0.0.1:9443 names"
    assert outside.only("restart-needed").fix == fix
    outside.get("Lease")["metadata"].pop("annotations")
    break_the_calls(outside)
    assert outside.only("webhook-unreachable").fix == (
        f"{STARTED}, or name its address: kueuelib install --webhook-url https://HOST:PORT"
    )


def test_a_manager_in_the_cluster_is_found_by_its_deployment(patient: Any) -> None:
    die(patient)
    where = "kubectl -n kueue-system"
    assert patient.only("leader").fix == (
        f"{where} get deployments,pods  # is there a manager? if not: kueuelib install"
    )
    pod = {"template": {"spec": {"containers": []}}}
    name = "kueue-controller-manager"
    found = patient.add("Deployment", name, "kueue-system", spec={**pod, "replicas": 0})
    assert patient.only("leader").fix == f"{where} scale deployment {name} --replicas=2"
    found["spec"]["replicas"] = 2
    assert patient.only("leader").fix.startswith(f"{where} get pods,endpointslices  # why does")


def test_another_namespace_is_installed_again_as_such(patient: Any) -> None:
    patient.configuration = attrs.evolve(Configuration(), namespace="queues")
    stop_serving(patient)
    fixes = {found.fix for name, found in patient.found() if name == "crd-versions"}
    assert fixes == {"kueuelib install --namespace queues"}


@pytest.mark.parametrize("make_ill", [convert_nothing, convert_elsewhere])
def test_conversions_lead_to_where_the_webhooks_are(
    patient: Any, outside: Any, make_ill: Any
) -> None:
    for one, fix in (
        (patient, "kueuelib install"),
        (outside, "kueuelib install --webhook-url https://127.0.0.1:9443"),
    ):
        make_ill(one)
        assert one.only("crd-conversion").fix == fix


INSTALL_WITH_A_FILE = "kueuelib install --webhook-url https://127.0.0.1:9443 --config FILE"


def test_a_command_names_the_file_that_doctor_was_given(outside: Any) -> None:
    outside.file = "my kueue.yaml"
    lose_a_field(outside)
    expected = INSTALL_WITH_A_FILE.replace("FILE", "'my kueue.yaml'")
    assert outside.only("crd-fields").fix == expected
    die(outside)
    (fix,) = {one.fix for name, one in outside.found() if name == "leader"}
    assert fix.startswith(f"kueuelib manager --config 'my kueue.yaml' {OWN}, on the machine")


ELSEWHERE = "--webhook-url URL if the manager runs outside of the cluster"


def interrupt(patient: Any) -> None:
    """An uninstallation has removed the webhooks and all kinds, and was stopped."""
    gone = (MUTATING, "ValidatingWebhookConfiguration", "CustomResourceDefinition")
    patient.objects = [one for one in patient.objects if one["kind"] not in gone]


@pytest.mark.parametrize(
    ("holder", "note", "fix"),
    [
        ("laptop_1", "", "kueuelib install --webhook-url URL --config FILE"),
        ("", "laptop_1", "kueuelib install --webhook-url URL --config FILE"),
        ("kueue-controller-manager-7d_1", "", "kueuelib install"),
        ("", "", f"kueuelib install  # with {ELSEWHERE}"),
    ],
)
def test_who_led_tells_where_the_manager_ran_once_its_webhooks_are_gone(
    outside: Any, holder: str, note: str, fix: str
) -> None:
    interrupt(outside)
    lease = outside.get("Lease")
    lease["spec"]["holderIdentity"] = holder
    lease["metadata"]["annotations"] = {PUBLISHED: f'{{"holder": "{note}"}}'} if note else {}
    fixes = {one.fix for name, one in outside.found() if name in ("crd-missing", "webhook-missing")}
    assert fixes == {fix}


def test_a_new_account_needs_a_new_token_for_a_manager_outside(outside: Any) -> None:
    lose_the_account(outside)
    assert outside.only("account-missing").fix == (
        "kueuelib install --webhook-url https://127.0.0.1:9443  # then a new token for the manager "
        "at https://127.0.0.1:9443, if it uses one: "
        "kubectl -n kueue-system create token kueue-controller-manager --duration 720h"
    )


def deployed(patient: Any, **given: Any) -> None:
    """Adds what `install` makes around the pods."""
    for obj in Deployed(**given).manifests("kueue-system"):
        meta = obj["metadata"]
        parts = {key: obj[key] for key in ("spec", "data") if key in obj}
        patient.add(obj["kind"], meta["name"], meta["namespace"], **copy.deepcopy(parts))


FILE = CONFIGURATION + "manageJobsWithoutQueueName: true\n"
PIPE = (
    "kubectl -n kueue-system get configmap kueue-manager-config "
    "-o jsonpath='{.data.controller_manager_config\\.yaml}' | "
)


@pytest.mark.parametrize(
    ("given", "fix"),
    [
        ({}, "kueuelib install"),
        ({"image": "r.example/k:2"}, "kueuelib install --image r.example/k:2"),
        ({"replicas": 3, "dashboards": True}, "kueuelib install --replicas 3 --dashboards"),
        ({"service_monitor": True}, "kueuelib install --service-monitor"),
        ({"config": FILE}, f"{PIPE}kueuelib install --config /dev/stdin"),
        (
            {"image": "r.example/k:2", "replicas": 1, "config": FILE},
            f"{PIPE}kueuelib install --image r.example/k:2 --replicas 1 --config /dev/stdin",
        ),
    ],
)
def test_installing_again_keeps_the_options_of_the_pods(patient: Any, given: Any, fix: str) -> None:
    deployed(patient, **given)
    lose_a_field(patient)
    assert patient.only("crd-fields").fix == fix
    release = {"meta.helm.sh/release-name": "kueue"}
    patient.get("Deployment")["metadata"]["annotations"] = release
    head, command, options = fix.partition("kueuelib install")
    assert patient.only("crd-fields").fix == (
        f"{head}{command} --chart ./chart{options} "
        "&& helm upgrade kueue ./chart --namespace kueue-system --reuse-values"
    )


def test_a_command_is_the_one_that_installed_it(patient: Any) -> None:
    """What the command writes is what is there, with the file from a pipe."""
    file = FILE + "visibilityServer: {bindPort: 8090}\n"
    given = {"image": "r.example/k:2", "replicas": 4, "dashboards": True, "service_monitor": True}
    deployed(patient, **given, config=file, visibility_port=8090)
    lose_a_field(patient)
    before, _, command = patient.only("crd-fields").fix.rpartition(" | kueuelib ")
    assert before
    read_end, write_end = os.pipe()
    os.write(write_end, file.encode())
    os.close(write_end)
    words = [one.replace("/dev/stdin", f"/dev/fd/{read_end}") for one in shlex.split(command)]
    done = CliRunner().invoke(app, [*words, "--print"])
    os.close(read_end)
    assert done.exit_code == 0, done.output
    printed = {one["kind"]: one for one in yaml.load_all(done.output, yaml.CSafeLoader)}
    assert printed["Deployment"]["spec"] == patient.get("Deployment")["spec"]
    assert {"ServiceMonitor", "APIService"} <= printed.keys()


def test_the_pods_of_another_manager_are_not_kept(patient: Any) -> None:
    deployed(patient)
    spec = patient.get("Deployment")["spec"]
    spec["replicas"], (container,) = 1, spec["template"]["spec"]["containers"]
    container |= {"image": "registry.k8s.io/kueue/kueue:v1", "args": ["--config=/c.yaml"]}
    lose_a_field(patient)
    (fix,) = {one.fix for name, one in patient.found() if name == "crd-fields"}
    assert fix == "kueuelib install"


@pytest.mark.parametrize(
    "make_ill", [lose_a_definition, stop_serving, lose_a_field, lose_a_configuration, deny]
)
def test_installing_again_takes_nothing_away_that_a_file_asks_for(
    outside: Any, make_ill: Any
) -> None:
    entries = outside.get("ValidatingWebhookConfiguration")["webhooks"]
    entries.append({**entries[0], "name": "vjobset.kb.io"})
    make_ill(outside)
    commands = {one.fix.partition("  # ")[0] for _, one in outside.found()}
    assert commands == {INSTALL_WITH_A_FILE}


def test_a_file_is_asked_for_if_what_is_installed_shows_that_there_is_one(outside: Any) -> None:
    lose_a_field(outside)
    fix = lambda: outside.only("crd-fields").fix  # noqa: E731
    assert fix() == INSTALL_WITH_A_FILE.removesuffix(" --config FILE")
    register(outside, VISIBILITY)
    assert fix() == INSTALL_WITH_A_FILE
    outside.remove("APIService")
    file = outside.add("ConfigMap", CONFIG_MAP, "kueue-system", data={CONFIG_FILE: CONFIGURATION})
    assert fix() == INSTALL_WITH_A_FILE.removesuffix(" --config FILE")
    file["data"][CONFIG_FILE] += "fairSharing: {}\n"
    assert fix() == INSTALL_WITH_A_FILE
    outside.remove("ConfigMap")
    entries = outside.get(MUTATING)["webhooks"]
    entries.append({**entries[0], "name": "mjobset.kb.io"})
    assert fix() == INSTALL_WITH_A_FILE


def test_another_address_keeps_the_file_too(outside: Any) -> None:
    ask_for_visibility(outside)
    register(outside, VISIBILITY, *OTHER_APIS)
    break_the_calls(outside)
    elsewhere = "kueuelib install --webhook-url https://HOST:PORT --config FILE"
    assert outside.only("webhook-unreachable").fix.endswith(f"or name its address: {elsewhere}")


def test_pods_that_do_not_run_or_are_the_only_ones_are_not_left_behind(patient: Any) -> None:
    keep_the_pods_of_before(patient)
    fix = "kubectl -n kueue-system delete deployment kueue-controller-manager"
    assert patient.only("deployment-left").fix == fix
    patient.get("Deployment")["spec"]["replicas"] = 0
    assert patient.found() == []
    patient.get("Deployment")["spec"]["replicas"] = 2
    for kind in (MUTATING, "ValidatingWebhookConfiguration"):
        for one in patient.get(kind)["webhooks"]:
            del one["clientConfig"]["url"]
    assert "deployment-left" not in [name for name, _ in patient.found()]


def test_the_visibility_api_is_looked_for_at_a_manager_that_should_serve_it(patient: Any) -> None:
    leave_an_api_behind(patient)
    fix = patient.only("visibility-unavailable").fix
    assert fix.startswith(
        f"kubectl delete apiservice {VISIBILITY}  # or start the manager with vis"
    )
    ask_for_visibility(patient)
    register(patient, *OTHER_APIS)
    assert patient.only("visibility-unavailable").fix.startswith("kubectl -n kueue-system logs")
    die(patient)
    assert patient.causes() == {"visibility-unavailable": "leader"}
    patient.get("APIService", VISIBILITY)["status"] = {}
    assert [name for name, _ in patient.found()] == ["leader"]


def test_a_manager_that_answers_without_leading_is_not_started_again(
    patient: Any, outside: Any
) -> None:
    for one, fix in (
        (patient, "kubectl -n kueue-system logs deployment/kueue-controller-manager"),
        (outside, "see the log of the manager on the machine that https://127.0.0.1:9443 names"),
    ):
        die(one)
        one.calls = [WebhookProbe("admission", "", by_manager=True)]
        found = one.only("leader")
        assert "a manager answers webhooks and tries again within a minute" in found.problem
        assert found.fix == fix


def test_a_manager_outside_needs_a_token_of_the_present_account(outside: Any) -> None:
    lose_the_lease(outside)
    made = outside.get("ServiceAccount")["metadata"]["creationTimestamp"]
    token = "kubectl -n kueue-system create token kueue-controller-manager --duration 720h"
    assert (
        outside.only("leader").fix == f"{STARTED}; it needs a token created after {made}: {token}"
    )


def test_a_lease_may_be_renewed_just_after_the_account_was_made_again(outside: Any) -> None:
    for seconds, needed in ((110, True), (105, True), (120, False)):
        made = format_time(outside.now - seconds)
        outside.get("ServiceAccount")["metadata"]["creationTimestamp"] = made
        die(outside)
        assert ("create token" in outside.only("leader").fix) is needed


def test_the_lease_shows_that_a_manager_had_a_file(outside: Any) -> None:
    lose_a_field(outside)
    notes = outside.get("Lease")["metadata"]["annotations"] = {}
    plain = INSTALL_WITH_A_FILE.removesuffix(" --config FILE")
    notes[PUBLISHED] = published(Configuration(), "laptop_1")
    assert outside.only("crd-fields").fix == plain
    with_pods = attrs.evolve(Configuration().integrations, frameworks=("batch/job", "pod"))
    configuration = attrs.evolve(Configuration(), integrations=with_pods)
    notes[PUBLISHED] = published(configuration, "laptop_1")
    assert outside.only("crd-fields").fix == INSTALL_WITH_A_FILE


@pytest.mark.parametrize("name", ["cohorts", "workloads"])
def test_a_conversion_elsewhere_is_found_for_every_kind_and_number_of_versions(
    outside: Any, name: str
) -> None:
    crd = outside.get("CustomResourceDefinition", f"{name}.kueue.x-k8s.io")
    config = {"url": "https://127.0.0.1:1"}
    crd["spec"]["conversion"] = {"strategy": "Webhook", "webhook": {"clientConfig": config}}
    for one in crd["spec"]["versions"]:
        one["served"] = one["name"] == "v1beta2"
    fixes = [one for check, one in outside.found() if check == "crd-conversion"]
    assert [one.fix for one in fixes] == [INSTALL_WITH_A_FILE.removesuffix(" --config FILE")]
    assert str(fixes[0].subject) == f"CustomResourceDefinition {name}.kueue.x-k8s.io"
