"""The manager's pods: what their manifests promise, and which configuration fits them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from kueuelib.api.crd import all_crds
from kueuelib.api.meta import Obj
from kueuelib.app.configuration import Configuration
from kueuelib.app.configuration_reading import parse_configuration
from kueuelib.app.dashboards import dashboard
from kueuelib.app.deployment import CONFIGURATION, USER, Deployed, checked_image
from kueuelib.app.installation import Installation, resource_of_object
from kueuelib.cli.syntax import app
from kueuelib.errors import ConfigError

ROOT = Path(__file__).parents[3]
APP = {"app.kubernetes.io/name": "kueue", "app.kubernetes.io/component": "controller"}


def plan(namespace: str = "queues", **fields: Any) -> list[Obj]:
    return Installation(namespace, deployed=Deployed(**fields)).manifests()


WEBHOOKS = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
"""What is written after the pods: without a manager they would refuse what they check."""


def only(objects: list[Obj], kind: str) -> Obj:
    (found,) = (obj for obj in objects if obj["kind"] == kind)
    return found


def test_the_manifests_are_everything_that_a_manager_needs() -> None:
    kinds = [obj["kind"] for obj in plan(service_monitor=True)]
    assert kinds[0] == "Namespace"
    assert kinds[-3:] == ["ServiceMonitor", *WEBHOOKS]
    for kind, count in {
        "Deployment": 1,
        "PodDisruptionBudget": 1,
        "NetworkPolicy": 1,
        "ConfigMap": 1,
        "Service": 2,
        "CustomResourceDefinition": len(all_crds()),
        "MutatingWebhookConfiguration": 1,
        "ValidatingWebhookConfiguration": 1,
        "ServiceAccount": 1,
    }.items():
        assert kinds.count(kind) == count
    assert "ServiceMonitor" not in [obj["kind"] for obj in plan()]
    for obj in plan(service_monitor=True):
        assert resource_of_object(obj).kind == obj["kind"]
        assert obj["metadata"].get("namespace", "queues") == "queues"


def test_the_dashboard_is_written_on_request_where_grafana_looks_for_it() -> None:
    (added,) = (obj for obj in plan(dashboards=True) if obj not in plan())
    assert added["kind"] == "ConfigMap"
    assert added["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert json.loads(added["data"]["kueuelib.json"]) == dashboard()
    assert added in printed("--namespace", "queues", "--dashboards")


def test_the_visibility_api_comes_last_and_is_let_through() -> None:
    found = plan(visibility_port=8082)
    new = [obj for obj in found if obj not in plan()]
    assert [obj["kind"] for obj in new[-2:]] == ["APIService", "APIService"]
    assert found[-2:] == new[-2:]
    assert all(obj["spec"]["service"]["namespace"] == "queues" for obj in new[-2:])
    container = only(found, "Deployment")["spec"]["template"]["spec"]["containers"][0]
    assert {"name": "visibility", "containerPort": 8082, "protocol": "TCP"} in container["ports"]
    ports = only(found, "NetworkPolicy")["spec"]["ingress"][0]["ports"]
    assert {"port": 8082, "protocol": "TCP"} in ports
    (reader,) = (obj for obj in new if obj["kind"] == "RoleBinding")
    assert reader["metadata"]["namespace"] == "kube-system"


def test_two_replicas_run_and_a_drain_takes_one_at_a_time() -> None:
    found = plan()
    deployment = only(found, "Deployment")
    assert deployment["spec"]["replicas"] == 2
    assert deployment["spec"]["selector"]["matchLabels"] == APP
    assert deployment["spec"]["template"]["metadata"]["labels"] == APP
    budget = only(found, "PodDisruptionBudget")["spec"]
    assert (budget["maxUnavailable"], budget["selector"]["matchLabels"]) == (1, APP)
    assert only(plan(replicas=1), "Deployment")["spec"]["replicas"] == 1


def test_the_pods_may_do_as_little_as_possible() -> None:
    pod = only(plan(), "Deployment")["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
    }


def test_what_is_asked_for_is_served_where_it_is_asked() -> None:
    """Probes, Services, the network policy and the configuration name the same ports."""
    found = plan(service_monitor=True)
    pod = only(found, "Deployment")["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    defaults = parse_configuration(yaml.load(CONFIGURATION, yaml.CSafeLoader), "default")
    assert ports == {
        "webhook-server": defaults.webhook.port,
        "health": int(defaults.health.health_probe_bind_address.removeprefix(":")),
        "metrics": int(defaults.metrics.bind_address.removeprefix(":")),
    }
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert container[probe]["httpGet"]["port"] == "health"
    allowed = only(found, "NetworkPolicy")["spec"]["ingress"][0]["ports"]
    assert {port["port"] for port in allowed} == {*ports.values()}
    for service in (obj for obj in found if obj["kind"] == "Service"):
        assert service["spec"]["selector"] == APP
        (port,) = service["spec"]["ports"]
        assert port["targetPort"] in {*ports, *ports.values()}
    (endpoint,) = only(found, "ServiceMonitor")["spec"]["endpoints"]
    assert endpoint["port"] == "https"


def test_the_configuration_of_the_pods_is_the_one_that_was_given() -> None:
    found = plan(config="apiVersion: x\n")
    (container,) = only(found, "Deployment")["spec"]["template"]["spec"]["containers"]
    path = container["args"][container["args"].index("--config") + 1]
    (mount,) = (one for one in container["volumeMounts"] if path.startswith(one["mountPath"]))
    name = path.removeprefix(f"{mount['mountPath']}/")
    assert only(found, "ConfigMap")["data"] == {name: "apiVersion: x\n"}


def test_the_image_runs_as_the_user_of_the_pods_and_is_made_of_wheels() -> None:
    text = (ROOT / "Dockerfile").read_text()
    assert re.search(r"^FROM python:\$\{PYTHON\}-slim$", text, re.MULTILINE)
    assert re.search(rf"^USER {USER}:{USER}$", text, re.MULTILINE)
    assert re.search(r'^ENTRYPOINT \["kueuelib"\]$', text, re.MULTILINE)
    (install,) = re.findall(r"pip install[^\n]*(?:\\\n[^\n]*)*", text)
    assert "--no-index" in install
    assert "--only-binary :all:" in install
    pod = only(plan(), "Deployment")["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsUser"] == USER


# ---- the command


def printed(*args: str) -> list[Obj]:
    done = CliRunner().invoke(app, ["install", "--print", *args])
    assert done.exit_code == 0, done.output
    return [obj for obj in yaml.load_all(done.output, yaml.CSafeLoader) if obj]


def written(folder: Path, **content: Any) -> str:
    head = {"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration"}
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump({**head, **content}))
    return str(path)


def test_what_is_printed_is_the_plan(tmp_path: Path) -> None:
    config = written(tmp_path, manageJobsWithoutQueueName=True)
    text = Path(config).read_text()
    args = ("--namespace", "q", "--image", "i:1", "--replicas", "3", "--service-monitor")
    deployed = Deployed("i:1", 3, text, service_monitor=True)
    assert printed(*args, "--config", config) == Installation("q", deployed=deployed).manifests()


def test_a_manager_elsewhere_has_no_pods() -> None:
    url = "https://127.0.0.1:9443"
    assert "Deployment" not in [obj["kind"] for obj in printed("--webhook-url", url)]
    refused = CliRunner().invoke(
        app, ["install", "--print", "--webhook-url", url, "--image", "i"], standalone_mode=False
    )
    assert isinstance(refused.exception, ConfigError)
    assert "leave out --image" in str(refused.exception)


def groups(objects: list[Obj]) -> set[str]:
    """The API groups that permissions and webhooks are about."""
    found = [rule for obj in objects for rule in obj.get("rules", ())]
    for obj in objects:
        found += [rule for hook in obj.get("webhooks", ()) for rule in hook["rules"]]
    return {group for rule in found for group in rule.get("apiGroups", ())}


def test_only_kinds_that_the_configuration_names_get_permissions_and_webhooks(
    tmp_path: Path,
) -> None:
    frameworks = ["batch/job", "ray.io/rayjob"]
    config = written(tmp_path, integrations={"frameworks": frameworks})
    url = ("--webhook-url", "https://127.0.0.1:9443")
    assert not {"ray.io", "jobset.x-k8s.io"} & groups(printed())
    for args in ((), url):
        found = printed("--config", config, *args)
        assert "ray.io" in groups(found)
        assert "jobset.x-k8s.io" not in groups(found)
        hooks = [hook["name"] for obj in found for hook in obj.get("webhooks", ())]
        assert {"mrayjob.ray.io", "vrayjob.ray.io"} <= {*hooks}
    chart = tmp_path / "chart"
    done = CliRunner().invoke(app, ["install", "--config", config, "--chart", str(chart)])
    assert done.exit_code == 0, done.output
    assert "rayjobs" in (chart / "templates/permissions.yaml").read_text()


@pytest.mark.parametrize(
    ("content", "want"),
    [
        ({"metrics": {"bindAddress": ":8080"}}, "metrics.bindAddress is ':8080'"),
        ({"webhook": {"port": 443}}, "webhook.port is 443, but the manifests say 9443"),
        ({"health": {"healthProbeBindAddress": "0"}}, "health.healthProbeBindAddress is '0'"),
        ({"namespace": "other"}, "namespace is 'other', but the manifests say 'kueue-system'"),
        ({"leaderElection": {"leaderElect": False}}, "give --replicas 1"),
        ({"typo": 1}, "unknown key typo"),
    ],
)
def test_a_configuration_that_does_not_fit_is_refused(
    tmp_path: Path, content: dict[str, Any], want: str
) -> None:
    args = ["install", "--print", "--config", written(tmp_path, **content)]
    refused = CliRunner().invoke(app, args, standalone_mode=False)
    assert isinstance(refused.exception, ConfigError)
    assert want in str(refused.exception)
    assert "config.yaml" in str(refused.exception)


IMAGES = (
    "k",
    "k:1",
    "registry.example:5000/team/kueue_lib:v1.0-rc.1",
    "[::1]:5000/k",
    f"k@sha256:{'0' * 64}",
)


@pytest.mark.parametrize("image", IMAGES)
def test_names_of_images(image: str) -> None:
    assert checked_image(image) == image


@pytest.mark.parametrize("image", ["", " ", "a b", "k ", "K:1", "k:", "k:a/b:c", "/k", "k\n"])
def test_what_is_no_name_of_an_image(image: str) -> None:
    args = ["install", "--print", "--image", image]
    done = CliRunner().invoke(app, args, standalone_mode=False)
    assert isinstance(done.exception, ConfigError)
    assert str(done.exception).startswith(f"--image {image!r}: is not the name of an image; ")


def test_the_default_configuration_is_a_good_one() -> None:
    found = parse_configuration(yaml.load(CONFIGURATION, yaml.CSafeLoader), "default")
    assert found.integrations.frameworks == ("batch/job", "pod")
    assert found.leader_election == Configuration().leader_election


@pytest.mark.parametrize(
    ("text", "mount"),
    [
        ("webhook: {certDir: /certs}\n", {"mountPath": "/certs"}),
        ("", {"mountPath": "/tmp/k8s-webhook-server/serving-certs"}),
    ],
)
def test_certificates_from_elsewhere_are_mounted_where_the_manager_looks(
    tmp_path: Path, text: str, mount: Obj
) -> None:
    config = tmp_path / "config.yaml"
    management = "internalCertManagement: {enable: false, webhookSecretName: theirs}\n"
    config.write_text(f"{CONFIGURATION}{management}{text}")
    chart = tmp_path / "chart"
    printed = CliRunner().invoke(app, ["install", "--print", "--config", str(config)])
    written = CliRunner().invoke(app, ["install", "--chart", str(chart), "--config", str(config)])
    assert (printed.exit_code, written.exit_code) == (0, 0), printed.output + written.output
    objects = [*yaml.load_all(printed.output, yaml.CSafeLoader)]
    pod = only(objects, "Deployment")["spec"]["template"]["spec"]
    assert {"name": "certificates", "secret": {"secretName": "theirs"}} in pod["volumes"]
    (container,) = pod["containers"]
    expected = {"name": "certificates", "readOnly": True, **mount}
    assert expected in container["volumeMounts"]
    template = (chart / "templates" / "manager.yaml").read_text()
    assert "secretName: theirs" in template


def test_a_folder_that_no_container_can_have_is_refused(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    text = "internalCertManagement: {enable: false}\nwebhook: {certDir: certs}\n"
    config.write_text(CONFIGURATION + text)
    done = CliRunner().invoke(app, ["install", "--print", "--config", str(config)])
    assert isinstance(done.exception, ConfigError)
    assert "webhook.certDir: 'certs' is not a whole path" in str(done.exception)


def test_own_certificates_are_not_mounted() -> None:
    pod = only(plan(), "Deployment")["spec"]["template"]["spec"]
    assert [one["name"] for one in pod["volumes"]] == ["config", "tmp"]
