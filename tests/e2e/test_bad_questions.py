"""What reads a cluster, asked with too few rights, of a server that is none, or with wrong files.

Every refusal is one line with the fix, an exit code that is documented, and in time.
"""

from __future__ import annotations

import base64
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml
from rest import KUEUE, Obj, Rest
from warm import kueuelib

from kueuelib.api.crd import all_crds
from kueuelib.runtime.connection import ATTEMPT_TIMEOUT
from kueuelib.runtime.yaml_files import MOST_BYTES
from kueuelib.testing.background import BackgroundServer
from kueuelib.testing.processes import free_port

GROUP = "kueue.x-k8s.io"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
COMMANDS = {
    "doctor": ("doctor",),
    "explain": ("explain", "workload/w", "-n", "ns"),
    "when": ("explain", "workload/w", "-n", "ns", "--when"),
    "pending": ("pending", "-n", "ns"),
    "report": ("report", "-n", "ns"),
    "serve": ("report", "--serve", "-n", "ns"),
}
SLACK = 60.0
"""Seconds that a busy machine may need besides."""


def refused(code: int, words: str, kubeconfig: Path, *args: object, seconds: float = 1.0) -> None:
    """One line that holds the words and a fix, in time; attempts may be logged before."""
    began = time.monotonic()
    done = kueuelib(*args, "--kubeconfig", kubeconfig, "--server-timeout", seconds, seconds=100)
    assert time.monotonic() - began < max(seconds, ATTEMPT_TIMEOUT) + SLACK
    told = [line for line in done.stderr.splitlines() if "waiting for the API server" not in line]
    assert (done.returncode, done.stdout) == (code, ""), done.stderr
    (line,) = told
    assert line.startswith("kueuelib: ")
    assert words in line
    assert "; " in line, "no fix"


def written(path: Path, url: str, authority: bytes = b"", token: str = "t") -> Path:
    """A kubeconfig of anything."""
    cluster = {"server": url}
    if authority:
        cluster["certificate-authority-data"] = base64.b64encode(authority).decode()
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": {"token": token}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "c",
    }
    path.write_text(yaml.safe_dump(content))
    return path


def typed(kind: str, name: str, **spec: Any) -> Obj:
    head = {"apiVersion": f"{GROUP}/v1beta2", "kind": kind, "metadata": {"name": name}}
    return {**head, "spec": spec}


def define(rest: Rest, *without: str) -> None:
    for definition in all_crds():
        if definition["spec"]["names"]["kind"] not in without:
            definition["spec"]["conversion"] = {"strategy": "None"}
            rest.create(CRDS, definition)


# --- rights


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[BackgroundServer, Path]]:
    """A server that obeys roles, with one Workload that waits."""
    folder = tmp_path_factory.mktemp("rights")
    with BackgroundServer(authorization="rbac") as found:
        with Rest(found.write_kubeconfig(folder / "admin")) as rest:
            define(rest)
            rest.create("/api/v1/namespaces", {"metadata": {"name": "ns"}})
            rest.create(f"{KUEUE}/resourceflavors", typed("ResourceFlavor", "f"))
            row = {"name": "f", "resources": [{"name": "cpu", "nominalQuota": "1"}]}
            group = {"coveredResources": ["cpu"], "flavors": [row]}
            queue = typed("ClusterQueue", "team", namespaceSelector={}, resourceGroups=[group])
            rest.create(f"{KUEUE}/clusterqueues", queue)
            where = f"{KUEUE}/namespaces/ns"
            rest.create(f"{where}/localqueues", typed("LocalQueue", "lq", clusterQueue="team"))
            container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "2"}}}
            template = {"spec": {"containers": [container], "restartPolicy": "Never"}}
            pods = [{"name": "main", "count": 1, "template": template}]
            rest.create(f"{where}/workloads", typed("Workload", "w", queueName="lq", podSets=pods))
        yield found, folder


def rule(group: str, *resources: str) -> Obj:
    return {"apiGroups": [group], "resources": list(resources), "verbs": ["get", "list", "watch"]}


OURS = [rule(GROUP, "*"), rule("", "namespaces", "limitranges")]
BUT_QUEUES = ("cohorts", "localqueues", "resourceflavors", "admissionchecks", "workloads")
ROLES: dict[str, tuple[str, list[Obj]]] = {
    "nothing": ("", []),
    "one-namespace": ("ns", [rule(GROUP, "*"), rule("", "*")]),
    "no-cluster-queues": ("", [rule(GROUP, *BUT_QUEUES), rule("", "*")]),
    "no-nodes": ("", OURS),
}
LACKS = "cannot list resource"
ASK = "ask for the right"
NO_START = "Its start is not known: visibility.kueuelib.dev/v1alpha1: "
ANSWERS: dict[tuple[str, str], tuple[int, str]] = {
    ("nothing", "doctor"): (1, "use a kubeconfig that may list the queueing kinds"),
    ("nothing", "pending"): (1, ASK),
    ("nothing", "report"): (1, ASK),
    ("one-namespace", "doctor"): (1, "use a kubeconfig that may list the queueing kinds"),
    ("one-namespace", "pending"): (0, "cannot be listed in the whole cluster"),
    ("one-namespace", "report"): (0, "cannot be listed in the whole cluster"),
    ("no-cluster-queues", "doctor"): (0, "Not checked: "),
    ("no-cluster-queues", "pending"): (0, "clusterqueues cannot be listed"),
    ("no-cluster-queues", "report"): (0, "clusterqueues cannot be listed"),
    ("no-nodes", "doctor"): (4, "Not checked: quota-promised, capacity-unused: nodes is forbidden"),
    ("no-nodes", "explain"): (0, "raise nominalQuota of flavor f: cpu by 1"),
    ("no-nodes", "when"): (0, "ExceedsMaxQuota"),
    ("no-nodes", "pending"): (0, "exceeds quota"),
    ("no-nodes", "report"): (0, "exceeds quota"),
    **{
        (role, command): answer
        for command, known in (("explain", "no changes were searched for"), ("when", NO_START))
        for role, answer in (
            ("nothing", (1, f"{ASK} to list queues, flavors and Workloads in the whole cluster")),
            ("one-namespace", (0, known)),
            ("no-cluster-queues", (0, known)),
        )
    },
}


def account(server: BackgroundServer, folder: Path, name: str) -> Path:
    """The kubeconfig of a ServiceAccount with a role of `ROLES`."""
    path = folder / name
    if path.exists():
        return path
    namespace, rules = ROLES[name]
    with Rest(folder / "admin") as rest:
        meta = {"metadata": {"name": name}}
        rest.create("/api/v1/namespaces/default/serviceaccounts", meta)
        kind = "Role" if namespace else "ClusterRole"
        where = f"{RBAC}/namespaces/{namespace}" if namespace else RBAC
        rest.create(f"{where}/{kind.lower()}s", {**meta, "rules": rules})
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name}
        subject = {"kind": "ServiceAccount", "name": name, "namespace": "default"}
        binding = {**meta, "roleRef": reference, "subjects": [subject]}
        rest.create(f"{where}/{kind.lower()}bindings", binding)
        tokens = f"/api/v1/namespaces/default/serviceaccounts/{name}/token"
        answer = rest.create(tokens, {"spec": {}})
    return server.write_kubeconfig(path, answer["status"]["token"])


@pytest.mark.parametrize(("role", "command"), ANSWERS)
def test_with_fewer_rights_there_is_an_answer_or_one_line(
    server: tuple[BackgroundServer, Path], role: str, command: str
) -> None:
    code, words = ANSWERS[role, command]
    kubeconfig = account(*server, role)
    if code == 1:
        refused(1, words, kubeconfig, *COMMANDS[command])
        return
    done = kueuelib(*COMMANDS[command], "--kubeconfig", kubeconfig)
    assert done.returncode == code, done.stdout + done.stderr
    assert words in done.stdout
    assert done.stderr == ""


# --- servers


class _Stuck(BaseHTTPRequestHandler):
    """Says who it is, and never answers anything else."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        if self.path != "/version":
            time.sleep(100)
            return
        self._say(json.dumps({"gitVersion": "v1.36.0"}))

    def _say(self, text: str) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())


class _Page(_Stuck):
    """A web site."""

    def do_GET(self) -> None:
        self._say("<html></html>")


@contextmanager
def answering(handler: type[_Stuck]) -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as found:
        found.daemon_threads = True
        found.block_on_close = False
        threading.Thread(target=found.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{found.server_address[1]}"
        found.shutdown()


@pytest.fixture(scope="module")
def places(server: tuple[BackgroundServer, Path]) -> Iterator[dict[str, tuple[Path, int, str]]]:
    """Kubeconfigs that lead to no API server; the exit code and the words of the refusal."""
    real, folder = server
    with (
        socket.create_server(("127.0.0.1", 0), backlog=100) as silent,
        answering(_Page) as page,
        answering(_Stuck) as stuck,
    ):
        quiet = silent.getsockname()[1]
        late = "the API server did not answer within 1 s"
        authority, other = "check the cluster's server and certificate-authority", real.url
        yield {
            name: (written(folder / name, *where), code, words)
            for name, (where, code, words) in {
                "nobody listens": (
                    (f"https://127.0.0.1:{free_port()}",),
                    2,
                    "server listens there",
                ),
                "no such host": (("https://nowhere.invalid",), 2, late),
                "accepts and is silent": ((f"https://127.0.0.1:{quiet}",), 2, late),
                "silent without TLS": ((f"http://127.0.0.1:{quiet}",), 2, late),
                "stuck later": ((stuck,), 1, "check the API server, then try again"),
                "a web site": ((page,), 2, "is not an API server"),
                "TLS to one without": ((page.replace("http", "https"),), 2, authority),
                "an unknown authority": ((other,), 2, authority),
                "an expired token": ((other, real.ca, "old"), 2, "refused the credentials"),
                "a broken authority": ((other, b"none"), 2, "holds no usable certificate"),
            }.items()
        }


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    "place",
    [
        *("nobody listens", "no such host", "accepts and is silent", "silent without TLS"),
        *("stuck later", "a web site", "TLS to one without", "an unknown authority"),
        *("an expired token", "a broken authority"),
    ],
)
def test_a_server_that_cannot_answer_is_one_line_in_time(
    places: dict[str, tuple[Path, int, str]], place: str, command: str
) -> None:
    kubeconfig, code, words = places[place]
    refused(code, words, kubeconfig, *COMMANDS[command])


@pytest.mark.parametrize("command", [*COMMANDS, "uninstall"])
def test_a_port_where_nobody_listens_is_told_at_once(command: str, tmp_path: Path) -> None:
    url = f"https://127.0.0.1:{free_port()}"
    args = [*COMMANDS.get(command, (command,)), "--kubeconfig", written(tmp_path / "kc", url)]
    done = kueuelib(*args, "--server-timeout", "600", seconds=SLACK)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"kueuelib: {url} (from {tmp_path}/kc): no API server listens there")
    assert line.endswith("; start it, or correct the cluster's server")


@pytest.mark.parametrize("command", ["doctor", "explain", "pending", "report"])
def test_nobody_waits_for_an_answer_longer_than_ten_seconds(command: str) -> None:
    assert "[default: 10.0; x>=0]" in kueuelib(command, "--help").stdout


# --- what is installed


@pytest.mark.parametrize(
    ("missing", "answers"),
    [
        ("Workload", dict.fromkeys(("explain", "when", "pending"), 2)),
        ("ClusterQueue", dict.fromkeys(("explain", "when"), 2)),
    ],
)
def test_half_an_installation_is_named_with_the_fix(
    missing: str, answers: dict[str, int], tmp_path: Path
) -> None:
    with BackgroundServer() as found:
        kubeconfig = found.write_kubeconfig(tmp_path / "kc")
        with Rest(kubeconfig) as rest:
            define(rest, missing)
            rest.create("/api/v1/namespaces", {"metadata": {"name": "ns"}})
        plural = f"{missing.lower()}s.{GROUP}"
        for command, code in answers.items():
            words = f"the cluster does not serve {plural}; run kueuelib install"
            refused(code, words, kubeconfig, *COMMANDS[command])
        report = kueuelib(*COMMANDS["report"], "--kubeconfig", kubeconfig)
        assert report.returncode == 0
        assert f"the cluster does not serve {plural}" in report.stdout
        doctor = kueuelib("doctor", "--kubeconfig", kubeconfig)
        assert doctor.returncode == 4
        assert f"{missing} is not defined in this cluster\n  -> kueuelib install" in doctor.stdout


# --- files

ALIASES = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12)
)
FILES: dict[str, bytes] = {
    "empty": b"",
    "binary": bytes(range(256)),
    "huge": b"a: " + b"x" * MOST_BYTES,
    "aliases": ALIASES.encode(),
    "nested": b"[" * 20_000 + b"]" * 20_000,
    "python": b"!!python/object/apply:os.getcwd []\n",
    "two": b"a: 1\n---\nb: 2\n",
    "utf-16": "kind: Config\n".encode("utf-16"),
}
SAID = {"binary": "not UTF-8", "utf-16": "not UTF-8", "huge": "larger than 4 MiB"}


@pytest.mark.parametrize("name", [*FILES, "folder", "absent"])
@pytest.mark.parametrize("use", ["--kubeconfig", "--config", "-f"])
def test_a_file_that_is_another_one_is_one_line(
    server: tuple[BackgroundServer, Path], tmp_path: Path, use: str, name: str
) -> None:
    path = tmp_path / name
    if name == "folder":
        path.mkdir()
    elif name in FILES:
        path.write_bytes(FILES[name])
    admin, words = server[1] / "admin", SAID.get(name, str(path))
    if use == "--kubeconfig":
        refused(2, words, path, "pending")
    else:
        refused(2, words, admin, "doctor" if use == "--config" else "explain", use, path)
