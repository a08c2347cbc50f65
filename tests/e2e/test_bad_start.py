"""What a user gets wrong at the start: one clear line that names it and the fix, exit code 2."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from warm import Processes, kueuelib

from kueuelib.testing.processes import LocalCluster, free_port

COMMANDS = ["install", "manager"]


def refused(done: subprocess.CompletedProcess[str], *words: str) -> None:
    """Exit code 2, no traceback, and a last line with all the words."""
    told = done.stdout + done.stderr
    assert done.returncode == 2, told
    assert "Traceback" not in told
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("kueuelib: ")]
    for word in words:
        assert word in line, told


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """An API server without CRDs and without a manager."""
    with Processes(tmp_path_factory.mktemp("server")) as processes:
        found = LocalCluster(processes)
        found.start_server()
        yield found


@pytest.mark.parametrize("command", COMMANDS)
def test_a_missing_kubeconfig(tmp_path: Path, command: str) -> None:
    path = tmp_path / "absent"
    refused(kueuelib(command, "--kubeconfig", path), str(path))


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("text", ["{", "kind: Config\n", "[]", "", "current-context: a\n"])
def test_a_malformed_kubeconfig(tmp_path: Path, command: str, text: str) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(text)
    refused(kueuelib(command, "--kubeconfig", path), str(path))


@pytest.mark.parametrize("command", COMMANDS)
def test_refused_credentials(server: LocalCluster, tmp_path: Path, command: str) -> None:
    config = yaml.safe_load(server.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": "wrong"}
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    refused(kueuelib(command, "--kubeconfig", path), str(path), "credentials")


@pytest.mark.parametrize("command", COMMANDS)
def test_an_unreachable_server_is_waited_for_visibly(
    server: LocalCluster, tmp_path: Path, command: str
) -> None:
    port = free_port()
    config = yaml.safe_load(server.kubeconfig.read_text())
    config["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{port}"
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    done = kueuelib(command, "--kubeconfig", path, "--server-timeout", 2)
    refused(done, f"https://127.0.0.1:{port}")
    assert "waiting" in (done.stdout + done.stderr).lower()


def test_missing_crds(server: LocalCluster) -> None:
    refused(kueuelib("manager", "--kubeconfig", server.kubeconfig), "kueuelib install")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("webook: {}", ["webook", "did you mean webhook"]),
        ("webhook: {port: high}", ["webhook.port", "whole number"]),
        ("webhook: [", ["malformed YAML"]),
        ("health: {healthProbeBindAddress: nowhere}", ["health.healthProbeBindAddress"]),
    ],
)
def test_a_mistake_in_the_configuration(
    server: LocalCluster, tmp_path: Path, text: str, words: list[str]
) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(f"apiVersion: config.kueue.x-k8s.io/v1beta1\nkind: Configuration\n{text}\n")
    done = kueuelib("manager", "--kubeconfig", server.kubeconfig, "--config", path)
    refused(done, str(path), *words)


def test_a_port_in_use_stops_the_api_server(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = kueuelib("apiserver", "--port", port, "--kubeconfig", tmp_path / "kubeconfig")
    refused(done, f"127.0.0.1:{port}")


def test_a_port_in_use_stops_the_manager(cluster: LocalCluster, tmp_path: Path) -> None:
    """The first manager keeps running; a second one on the same ports says which is taken."""
    config = cluster.processes.folder / "config.yaml"
    done = kueuelib("manager", "--kubeconfig", cluster.kubeconfig, "--config", config)
    refused(done, "in use")
    cluster.wait_for_manager()


@pytest.mark.parametrize(
    ("key", "content"),
    [
        ("health.healthProbeBindAddress", "health: {{healthProbeBindAddress: 127.0.0.1:{port}}}"),
        ("metrics.bindAddress", "metrics: {{bindAddress: 127.0.0.1:{port}}}"),
        ("webhook.port", "webhook: {{host: 127.0.0.1, port: {port}}}"),
        (
            "visibilityServer.bindPort",
            "visibilityServer: {{bindAddress: 127.0.0.1, bindPort: {port}}}",
        ),
    ],
)
def test_a_port_in_use_is_one_line_with_port_key_and_fix(
    server: LocalCluster, tmp_path: Path, key: str, content: str
) -> None:
    """Also before the API server is waited for, and with everything else free."""
    config = tmp_path / "config.yaml"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        texts = {
            "health": "health: {healthProbeBindAddress: '0'}",
            "metrics": "metrics: {bindAddress: '0'}",
            "webhook": f"webhook: {{host: 127.0.0.1, port: {free_port()}}}",
        } | {key.partition(".")[0]: content.format(port=port)}
        lines = ["apiVersion: config.kueue.x-k8s.io/v1beta2", "kind: Configuration"]
        config.write_text("\n".join([*lines, *texts.values()]))
        done = kueuelib("manager", "--kubeconfig", server.kubeconfig, "--config", config)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f"kueuelib: {config}: {key}: 127.0.0.1:{port}: the address is in use; "
        "end the program that uses it, or choose another address\n"
    )


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("leaderElection: {leaseDuration: 1s}", ["leaderElection", "lease duration must exceed"]),
        ("leaderElection: {retryPeriod: 9s}", ["leaderElection", "renew deadline must exceed"]),
        ("metrics: {bindAddress: nowhere}", ["metrics.bindAddress", "is not an address"]),
        ("webhook: {port: 8443}", ["webhook.port", "port 8443 is that of metrics.bindAddress"]),
    ],
)
def test_one_rule_for_all_who_read_the_configuration(
    server: LocalCluster, tmp_path: Path, line: str, words: list[str]
) -> None:
    config = tmp_path / "config.yaml"
    head = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n"
    config.write_text(f"{head}{line}\n")
    for command in (
        ("manager", "--print-config"),
        ("install", "--print"),
        ("install", "--print", "--webhook-url", "https://127.0.0.1:9443"),
        ("manager", "--kubeconfig", str(server.kubeconfig)),
    ):
        refused(kueuelib(*command, "--config", config), str(config), *words)


def test_one_port_for_two_servers(server: LocalCluster, tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(
        "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n"
        "metrics: {bindAddress: ':19443'}\nwebhook: {host: 127.0.0.1, port: 19443}\n"
    )
    done = kueuelib("manager", "--kubeconfig", server.kubeconfig, "--config", config)
    refused(done, "webhook.port", "port 19443 is that of metrics.bindAddress, too")


def test_a_port_in_use_stops_an_operator(server: LocalCluster, tmp_path: Path) -> None:
    path = tmp_path / "notes.py"
    path.write_text(
        "from kueuelib.api.kinds import JOBS\n"
        "from kueuelib.runtime import Operator\n"
        "operator = Operator('notes')\n"
        "@operator.reconciles(JOBS)\n"
        "async def look(job, ctx):\n"
        "    pass\n"
    )
    with socket.create_server(("127.0.0.1", 0)) as taken:
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        args = ["--kubeconfig", server.kubeconfig, "--metrics-address", where]
        done = kueuelib("run", path, *args)
    refused(done, f"metrics address: {where}: the address is in use")
    assert done.stderr.count("\n") == 1


def test_a_kubeconfig_that_cannot_be_written(tmp_path: Path) -> None:
    path = tmp_path / "absent" / "kubeconfig"
    refused(kueuelib("apiserver", "--kubeconfig", path), str(path))


def test_a_data_dir_that_cannot_be_used(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    refused(kueuelib("apiserver", "--kubeconfig", tmp_path / "k", "--data-dir", path), str(path))
    (tmp_path / "state.db").write_text("no database")
    done = kueuelib("apiserver", "--kubeconfig", tmp_path / "k", "--data-dir", tmp_path)
    refused(done, "state.db", "cannot be read")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: [", "error parsing YAML"),
        ("just text", "an object is expected"),
        ("kind: ConfigMap", "apiVersion"),
        ("{apiVersion: v1, kind: Thing, metadata: {name: a}}", "no matches for kind"),
        ("{apiVersion: v1, kind: ConfigMap, metadata: {name: A_}}", "ConfigMap A_"),
        ("{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: b}}", "not found"),
    ],
)
def test_manifests_that_cannot_be_loaded(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "manifests.yaml"
    path.write_text(text)
    done = kueuelib("apiserver", "--kubeconfig", tmp_path / "k", "--load", path)
    refused(done, str(path), words)
    assert not (tmp_path / "k").exists()


def test_missing_manifests(tmp_path: Path) -> None:
    path = tmp_path / "absent"
    refused(kueuelib("apiserver", "--kubeconfig", tmp_path / "k", "--load", path), str(path))


@pytest.mark.parametrize("command", COMMANDS)
def test_a_certificate_of_a_stranger_is_no_reason_to_wait(
    server: LocalCluster, tmp_path: Path, command: str
) -> None:
    """TLS that cannot be verified stays so: the file and the authority are named at once."""
    config = yaml.safe_load(server.kubeconfig.read_text())
    config["clusters"][0]["cluster"].pop("certificate-authority-data")
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    refused(kueuelib(command, "--kubeconfig", path), str(path), "certificate")


def test_the_webhook_url_is_checked(server: LocalCluster) -> None:
    done = kueuelib(
        "install", "--kubeconfig", server.kubeconfig, "--webhook-url", "http://127.0.0.1:1"
    )
    refused(done, "--webhook-url", "https")


def test_the_manager_survives_a_server_that_goes_away(cluster: LocalCluster) -> None:
    """Once it runs, the manager waits for a lost server without end."""
    cluster.processes.kill("apiserver")
    with pytest.raises(subprocess.TimeoutExpired):
        cluster.processes.wait("manager", 5)
    assert cluster.processes.stop("manager") == 0


def test_a_file_that_is_no_kubeconfig_of_ours_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text("apiVersion: v1\nkind: Config\n")
    refused(kueuelib("apiserver", "--kubeconfig", path), str(path))
    assert path.read_text() == "apiVersion: v1\nkind: Config\n"


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "https://127.0.0.1:1/path", "https://:1"])
def test_a_webhook_url_is_an_address_only(server: LocalCluster, url: str) -> None:
    refused(kueuelib("install", "--kubeconfig", server.kubeconfig, "--webhook-url", url), url)


def test_installing_again_says_that_nothing_changed(cluster: LocalCluster) -> None:
    url = f"https://127.0.0.1:{cluster.webhook_port}"
    done = kueuelib("install", "--kubeconfig", cluster.kubeconfig, "--webhook-url", url)
    assert done.returncode == 0, done.stderr
    written = ("created", "configured")
    changed = [line for line in done.stdout.splitlines() if line.endswith(written)]
    # The manager limits the webhooks to what its configuration enables, and does so again.
    assert all("webhookconfiguration/" in line for line in changed), done.stdout


@pytest.mark.parametrize("command", ["run", "manifests"])
@pytest.mark.parametrize("source", ["def f(:\n", "1 / 0\n", "raise ValueError('no')\n"])
def test_a_module_of_jobs_that_cannot_be_imported(
    tmp_path: Path, command: str, source: str
) -> None:
    path = tmp_path / "broken_jobs.py"
    path.write_text(source)
    refused(kueuelib(command, path), f"{path}, line 1: ", "correct it")


EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize("command", ["run", "manifests"])
def test_a_name_that_the_module_does_not_have(command: str) -> None:
    path = EXAMPLES / "05_operator.py"
    refused(kueuelib(command, f"{path}:foo"), f"{path} has no foo", "offers app (operator)")


@pytest.mark.parametrize("command", [["-m", "kueuelib", "run"], []])
def test_an_operator_without_a_kubeconfig(tmp_path: Path, command: list[str]) -> None:
    env = {name: text for name, text in os.environ.items() if not name.startswith("KUBE")}
    done = subprocess.run(
        [sys.executable, *command, str(EXAMPLES / "05_operator.py")],
        env={**env, "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    voice = "kueuelib" if command else "05_operator.py"
    assert done.stderr.startswith(f"{voice}: {tmp_path}/.kube/config: there is no kubeconfig")
    assert done.stderr.count("\n") == 1
    assert done.stderr.endswith("name one with $KUBECONFIG, --kubeconfig or kubeconfig=\n")


@pytest.mark.parametrize("command", [["-m", "kueuelib", "run"], []])
def test_an_operator_without_its_definition(server: LocalCluster, command: list[str]) -> None:
    program = [sys.executable, *command, str(EXAMPLES / "05_operator.py")]
    done = subprocess.run(
        [*program, *(["--no-leader-elect"] if command else [])],
        env={**os.environ, "KUBECONFIG": str(server.kubeconfig)},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    said = "sites: is not served in example.com/v1; run `kueuelib manifests FILE | kubectl apply"
    lines = [line for line in done.stderr.splitlines() if said in line]
    assert len(lines) == 2, done.stderr  # at once, and at the end
    voice = "kueuelib" if command else "05_operator.py"
    assert lines[1].startswith(f"{voice}: ")
    assert "failed" not in done.stderr
