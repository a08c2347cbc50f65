"""`kueuelib node`: pods that really run, what contains them, and what is refused."""

from __future__ import annotations

import base64
import os
import socket
import stat
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from local_node import LocalNode, local_node
from rest import PODS, condition, eventually, is_true
from unprivileged import of_another_user, without_sandbox

from kueuelib.errors import ConfigError
from kueuelib.node.node import refuse_unfit
from kueuelib.node.sandbox import MOST_PROCESSES

NAMESPACE = "/api/v1/namespaces/default"
CONFIG_MAPS = f"{NAMESPACE}/configmaps"
SECRETS = f"{NAMESPACE}/secrets"
CLAIMS = f"{NAMESPACE}/persistentvolumeclaims"


@pytest.fixture(scope="module")
def claimed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the claim `shared`."""
    return tmp_path_factory.mktemp("claimed")


@pytest.fixture(scope="module")
def node(claimed: Path) -> Iterator[LocalNode]:
    """A node with a sandbox; it leaves nothing."""
    if problem := without_sandbox():
        pytest.skip(problem)
    with local_node("--claim", f"shared={claimed}") as started:
        yield started
        started.stop()
        assert started.processes() == []
        assert not started.folder.exists()


IN_CLUSTER = """
import asyncio, os, sys
from kueuelib.runtime import connect, kinds
async def main():
    async with await connect() as client:
        async for obj in client.list_all(kinds.CONFIG_MAPS, "default"):
            print("sees", obj["metadata"]["name"])
asyncio.run(main())
print("home", os.getcwd(), os.environ["HOME"], os.listdir("."))
print("inherits", "NOT_INHERITED" in os.environ, "SHELL" in os.environ)
print(open("/config/key").read(), os.environ["PASSWORD"], os.environ["GREETING"])
open("/scratch/file", "w").write("x")
try:
    open("/usr/file", "w")
except OSError as error:
    print("read-only", error.errno)
print("hidden", not os.path.exists(NODE))
open("/dev/termination-log", "w").write("so long")
print("bad", file=sys.stderr)
sys.exit(3)
"""


def test_a_pod_has_what_its_specification_says(node: LocalNode) -> None:
    node.rest.create(CONFIG_MAPS, {"metadata": {"name": "c"}, "data": {"key": "value"}})
    password = base64.b64encode(b"hidden").decode()
    node.rest.create(SECRETS, {"metadata": {"name": "s"}, "data": {"p": password}})
    script = IN_CLUSTER.replace("NODE", repr(str(node.folder)))
    env = [
        {"name": "PASSWORD", "valueFrom": {"secretKeyRef": {"name": "s", "key": "p"}}},
        {"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "GREETING", "value": "I am $(NAME)"},
    ]
    mounts = [
        {"name": "config", "mountPath": "/config"},
        {"name": "scratch", "mountPath": "/scratch"},
    ]
    volumes = [
        {"name": "config", "configMap": {"name": "c"}},
        {"name": "scratch", "emptyDir": {}},
    ]
    command = ["python", "-c", script]
    container = {"image": "py:1.0", "command": command, "env": env, "volumeMounts": mounts}
    node.run("whole", container=container, volumes=volumes)
    pod = node.reaches("whole", "Failed")
    text = node.text("whole")
    for line in (
        "sees c",
        "home /home/pod /home/pod []",
        "inherits False False",
        "value hidden I am whole",
        "read-only 30",
        "hidden True",
        "bad",
    ):
        assert line in text, text
    end = node.state("whole")["state"]["terminated"]
    assert (end["exitCode"], end["message"]) == (3, "so long")
    assert pod["status"]["podIP"].startswith("127.")
    assert condition(pod, "Ready")["reason"] == "PodFailed"
    assert stat.S_IMODE(node.folder.stat().st_mode) == 0o700  # so no other user reads a log
    node.rest.delete(f"{PODS}/whole")
    eventually(lambda: not (node.folder / "pods" / pod["metadata"]["uid"]).exists())


def test_a_claim_is_a_folder_that_others_see_too(node: LocalNode, claimed: Path) -> None:
    (claimed / "given").write_text("from outside")
    spec = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
    node.rest.create(CLAIMS, {"metadata": {"name": "shared"}, "spec": spec})
    mounts = [
        {"name": "shared", "mountPath": "/shared"},
        {"name": "shared", "mountPath": "/reads", "readOnly": True},
    ]
    volumes = [{"name": "shared", "persistentVolumeClaim": {"claimName": "shared"}}]
    script = "cat /shared/given; echo from inside > /shared/made; echo no > /reads/other"
    node.run("shares", script, container={"volumeMounts": mounts}, volumes=volumes)
    node.reaches("shares", "Failed")
    assert "from outside" in node.text("shares")
    assert "Read-only file system" in node.text("shares")
    assert (claimed / "made").read_text() == "from inside\n"
    assert {each.name for each in claimed.iterdir()} == {"given", "made"}


def test_containers_begin_in_order_share_loopback_and_restart(node: LocalNode) -> None:
    serve = "cd /tmp; echo up > ready; exec python -m http.server 8733 --bind $POD_IP"
    address = {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
    probe = {"httpGet": {"path": "/ready", "port": 8733}, "periodSeconds": 1}
    sidecar = {
        "name": "server",
        "image": "py",
        "restartPolicy": "Always",
        "command": ["/bin/sh", "-c", serve],
        "env": [address],
        "startupProbe": {**probe, "failureThreshold": 30},
        "readinessProbe": probe,
    }
    first = {"name": "first", "image": "sh", "command": ["/bin/sh", "-c", "echo one >> ~/runs"]}
    asks = (
        "import os, urllib.request as r, sys\n"
        "print(r.urlopen(f'http://{os.environ[\"POD_IP\"]}:8733/ready').read().decode().strip())\n"
        "runs = open(os.path.expanduser('~/runs'), 'a+'); runs.write('two\\n'); runs.seek(0)\n"
        "sys.exit(0 if len(runs.readlines()) > 2 else 1)"
    )
    main = {"name": "main", "image": "py", "command": ["python", "-c", asks], "env": [address]}
    node.run("ordered", policy="OnFailure", containers=[main], initContainers=[first, sidecar])
    node.reaches("ordered", "Succeeded")
    main_status = node.state("ordered")
    assert main_status["restartCount"] == 1
    assert main_status["lastState"]["terminated"]["exitCode"] == 1
    assert node.text("ordered") == node.text("ordered", previous="true") == "up"
    assert node.state("ordered", "first")["state"]["terminated"]["exitCode"] == 0
    assert "terminated" in node.state("ordered", "server")["state"]


def test_a_container_gets_sigterm_its_hook_and_time(node: LocalNode) -> None:
    polite = "trap 'echo term; exit 0' TERM; echo up; while :; do sleep 0.1; done"
    hook = {"preStop": {"exec": {"command": ["/bin/sh", "-c", "echo hook >> ~/hook"]}}}
    node.run("polite", polite, container={"lifecycle": hook})
    stubborn = "trap '' TERM; echo up; while :; do sleep 0.1; done"
    node.run("stubborn", stubborn, terminationGracePeriodSeconds=1)
    node.run("forced", stubborn, terminationGracePeriodSeconds=1000)
    names = ("polite", "stubborn", "forced")
    for name in names:
        node.reaches(name, "Running")
        eventually(lambda name=name: node.text(name) == "up")
    paths = [node.folder / "pods" / node.pod(name)["metadata"]["uid"] for name in names]
    files = [(path / "logs/main/0.log").open() for path in paths]
    begun = time.monotonic()
    for name in names:
        node.rest.delete(f"{PODS}/{name}")
    node.says("forced", "Killing: Stopping container main")
    node.rest.delete(f"{PODS}/forced", gracePeriodSeconds="0")

    def gone() -> bool:
        return not {each["metadata"]["name"] for each in node.rest.items(PODS)}.intersection(names)

    eventually(gone)
    eventually(lambda: not any(path.exists() for path in paths))
    assert time.monotonic() - begun < 1000
    polite_text, stubborn_text, _ = (file.read() for file in files)
    assert "term" in polite_text
    assert "term" not in stubborn_text
    for file in files:
        file.close()
    node.says("polite", "Killing: Stopping container main")
    for path in paths:
        assert node.processes(path.name) == []


def test_what_daemonises_ends_with_its_container(node: LocalNode) -> None:
    script = "setsid sh -c 'env -i sleep 4321 &' ; setsid sleep 4321 & echo up; sleep 0.3"
    node.run("daemon", script)
    node.reaches("daemon", "Succeeded")
    names = [entry / "cmdline" for entry in Path("/proc").iterdir() if entry.name.isdigit()]

    def sleepers() -> int:
        count = 0
        for each in names:
            try:
                count += b"4321" in each.read_bytes().split(b"\0")
            except OSError:
                continue
        return count

    eventually(lambda: not sleepers())


async def test_a_command_runs_inside_with_the_limits_of_the_container(node: LocalNode) -> None:
    limits = {"limits": {"memory": "512Mi"}}
    node.run("inside", "ulimit -v; touch ~/here; sleep 600", container={"resources": limits})
    node.reaches("inside", "Running")
    eventually(lambda: node.text("inside") == str(512 * 1024))
    script = "ls ~; id -u; ulimit -v; grep CapEff /proc/self/status; touch /usr/x; exit 4"
    output, end = await node.exec("inside", "/bin/sh", "-c", script)
    lines = output.splitlines()
    assert lines[:1] + lines[2:3] == ["here", str(512 * 1024)]
    assert "CapEff:\t0000000000000000" in lines
    assert "Read-only file system" in output
    assert '"message":"4"' in end
    output, end = await node.exec("inside", "no-such-program")
    assert "No such file or directory" in output
    assert '"message":"127"' in end
    node.rest.delete(f"{PODS}/inside")


def test_a_fork_bomb_is_contained(request: pytest.FixtureRequest) -> None:
    if os.geteuid() != 0:
        contains_a_fork_bomb(request.getfixturevalue("node"))
        return
    if problem := without_sandbox():
        pytest.skip(problem)
    with local_node(before=of_another_user()) as node:
        contains_a_fork_bomb(node)


BOMB = """
import os, time
count = 0
try:
    while count < 2000 and os.fork():
        count += 1
except OSError:
    print(count, flush=True)
time.sleep(60)
"""


def contains_a_fork_bomb(node: LocalNode) -> None:
    node.run("bomb", container={"image": "py", "command": ["python", "-c", BOMB]})
    node.reaches("bomb", "Running")
    assert 0 < int(eventually(lambda: node.text("bomb"))) < MOST_PROCESSES
    assert len(node.processes()) < MOST_PROCESSES + 10
    node.run("beside", "echo fine")
    node.reaches("beside", "Succeeded")
    node.rest.delete(f"{PODS}/bomb")
    eventually(lambda: not node.processes())


def test_what_is_not_honoured_is_refused_with_an_event(node: LocalNode) -> None:
    node.run("image", container={"image": "alpine:3"})
    node.says("image", "ErrImageNeverPull: Container image 'alpine:3'")
    node.says("image", "--image alpine:3=FOLDER")
    assert node.state("image")["state"]["waiting"]["reason"] == "ErrImageNeverPull"
    node.run("host", volumes=[{"name": "v", "hostPath": {"path": "/etc"}}], hostPID=True)
    pod = node.reaches("host", "Failed")
    assert pod["status"]["reason"] == "PodFeatureUnsupported"
    assert "containerStatuses" not in pod["status"]
    node.says("host", "spec.volumes[0].hostPath: pods do not see the host's files")
    node.says("host", "spec.hostPID")
    node.run("root", container={"securityContext": {"runAsUser": 0}})
    node.reaches("root", "Failed")
    node.run("many", container={"env": [{"name": f"X{n}", "value": "1"} for n in range(3000)]})
    node.says("many", "environment variables")
    assert node.state("many")["state"]["waiting"]["reason"] == "CreateContainerConfigError"
    node.run("missing", container={"envFrom": [{"secretRef": {"name": "later"}}]}, script="exit 0")
    node.says("missing", 'secret "later" not found')
    node.rest.create(SECRETS, {"metadata": {"name": "later"}, "data": {}})
    node.reaches("missing", "Succeeded")
    with pytest.raises(httpx.HTTPStatusError, match="422"):
        node.run("../../etc")
    data = {"metadata": {"name": "paths"}, "data": {"key": "inside"}}
    node.rest.create(CONFIG_MAPS, data)
    mount = {"name": "v", "mountPath": "/v", "subPathExpr": "$(WAY)"}
    volumes = [{"name": "v", "configMap": {"name": "paths"}}]
    for name, way in (("up", "../../../.."), ("root", "/etc")):
        env = [{"name": "WAY", "value": way}]
        node.run(f"sub-{name}", volumes=volumes, container={"volumeMounts": [mount], "env": env})
        node.says(f"sub-{name}", "leaves its volume v")
        node.rest.delete(f"{PODS}/sub-{name}")
    node.run("nothing", container={"command": ["no-such-program"]})
    node.reaches("nothing", "Failed")
    assert node.state("nothing")["state"]["terminated"]["reason"] == "StartError"
    for name in ("image", "many"):
        node.rest.delete(f"{PODS}/{name}")


def test_a_container_that_fails_its_liveness_probe_is_restarted(node: LocalNode) -> None:
    probe = {"exec": {"command": ["/bin/sh", "-c", "test ! -e ~/sick"]}, "periodSeconds": 1}
    script = "test -e ~/sick && exit 0; sleep 0.5; touch ~/sick; sleep 60"
    container = {"livenessProbe": {**probe, "failureThreshold": 2}}
    node.run("sick", script, policy="OnFailure", container=container)
    node.reaches("sick", "Succeeded")
    assert node.state("sick")["restartCount"] == 1
    node.says("sick", "Unhealthy: Liveness probe failed")


def test_the_scheduler_uses_the_node_for_pods_that_tolerate_it(node: LocalNode) -> None:
    script = "echo placed"
    tolerations = [{"key": "kueuelib.dev/local", "operator": "Exists"}]
    selector = {"kueuelib.dev/local": "true"}
    node.run("placed", script, nodeName=None, nodeSelector=selector, tolerations=tolerations)
    node.reaches("placed", "Succeeded")
    assert node.text("placed") == "placed"
    node.run("untolerated", script, nodeName=None, nodeSelector=selector)
    node.says("untolerated", "untolerated taint(s) {kueuelib.dev/local: true}")


def test_a_port_that_is_in_use_is_an_event(node: LocalNode) -> None:
    with socket.create_server(("0.0.0.0", 0)) as server:
        port = server.getsockname()[1]
        node.run("taken", "exit 0", container={"ports": [{"containerPort": port}]})
        node.says("taken", f":{port} is in use")


def test_pods_find_each_other_by_the_names_of_services(node: LocalNode) -> None:
    serve = "cd /tmp; echo here > index.html; exec python -m http.server 8734"
    container = {"image": "py", "command": ["/bin/sh", "-c", serve]}
    probe = {"tcpSocket": {"port": 8734}, "periodSeconds": 1}
    container["readinessProbe"] = probe
    asks = "import urllib.request as r; print(r.urlopen('http://backend:8734').read().decode())"
    retry = f'until python -c "{asks}"; do sleep 0.2; done'
    node.run("asks", container={"image": "py", "command": ["/bin/sh", "-c", retry]})
    node.reaches("asks", "Running")
    spec = {"selector": {"app": "backend"}, "ports": [{"port": 8734}]}
    node.rest.create(f"{NAMESPACE}/services", {"metadata": {"name": "backend"}, "spec": spec})
    node.run("backend", container=container)
    node.rest.merge(f"{PODS}/backend", {"metadata": {"labels": {"app": "backend"}}})
    node.reaches("asks", "Succeeded")
    assert node.text("asks").endswith("here")
    node.rest.delete(f"{PODS}/backend")


def test_commands_enter_a_sandbox_that_is_complete(node: LocalNode) -> None:
    hook = {"postStart": {"exec": {"command": ["sh", "-c", "test -d ~ && test ! -e /oldroot"]}}}
    for number in range(6):
        node.run(f"hooked-{number}", "sleep 600", container={"lifecycle": hook})
    for number in range(6):
        node.reaches(f"hooked-{number}", "Running")
        assert "FailedPostStartHook" not in node.events(f"hooked-{number}")
        node.rest.delete(f"{PODS}/hooked-{number}")


def test_a_node_shares_neither_its_name_nor_a_folder(node: LocalNode, tmp_path: Path) -> None:
    other = LocalNode(tmp_path / "other", node.kubeconfig, node.rest)
    with pytest.raises(pytest.fail.Exception, match="a node of this name runs with"):
        other.start()
    full = tmp_path / "full"
    (full / "pods" / "mine").mkdir(parents=True)
    with pytest.raises(pytest.fail.Exception, match="is not empty, and not of a node"):
        LocalNode(full, node.kubeconfig, node.rest).start()
    assert (full / "pods" / "mine").exists()
    assert is_true(node.rest.get("/api/v1/nodes/local"), "Ready")


def test_kill_and_return_of_the_node(node: LocalNode) -> None:
    node.run("once", "echo up; sleep 600")
    node.run("again", "test -e ~/x && exit 0; touch ~/x; sleep 600", policy="OnFailure")
    for name in ("once", "again"):
        node.reaches(name, "Running")
    eventually(lambda: node.text("once") == "up")
    node.kill()
    eventually(lambda: not node.processes())
    node.start()
    node.reaches("once", "Failed")
    end = node.state("once")["state"]["terminated"]
    assert (end["exitCode"], end["reason"]) == (137, "ContainerStatusUnknown")
    node.says("once", "The node ended while these containers ran: main")
    node.reaches("again", "Succeeded")
    assert node.state("again")["restartCount"] == 1
    assert is_true(node.rest.get("/api/v1/nodes/local"), "Ready")


def test_without_a_sandbox() -> None:
    with local_node("--no-sandbox") as node:
        assert "WITHOUT a sandbox" in node.log
        script = "import os; print(os.getcwd() == os.environ['HOME'], 'SHELL' in os.environ)"
        node.run("plain", container={"image": "py", "command": ["python", "-c", script]})
        node.reaches("plain", "Succeeded")
        assert node.text("plain") == "True False"
        mounts = [{"name": "v", "mountPath": "/v"}]
        volumes = [{"name": "v", "emptyDir": {}}]
        node.run("mount", container={"volumeMounts": mounts}, volumes=volumes)
        node.reaches("mount", "Failed")
        node.says("mount", "mounts need the sandbox")
        node.run("writes", container={"securityContext": {"readOnlyRootFilesystem": True}})
        node.says("writes", "readOnlyRootFilesystem: true: needs the sandbox")
        node.run("daemon", "setsid sleep 4322 & echo up; sleep 0.2")
        node.reaches("daemon", "Succeeded")
        node.run("left", "setsid sleep 4323 & echo up; sleep 4324")
        node.reaches("left", "Running")
        eventually(lambda: len(node.processes()) == 3)
        node.kill()
        assert len(node.processes()) == 3
        node.start()
        assert node.processes() == []
        assert "ended processes that an earlier run left" in node.log
        node.reaches("left", "Failed")
        node.run("last", "trap 'echo bye; exit 0' TERM; echo up; sleep 60 & wait")
        node.reaches("last", "Running")
        assert node.stop() < 20
        assert node.processes() == []
        assert not node.folder.exists()
        last = node.pod("last")
        assert (last["status"]["phase"], last["status"]["reason"]) == ("Failed", "Terminated")
        assert is_true(last, "DisruptionTarget")
        assert not is_true(node.rest.get("/api/v1/nodes/local"), "Ready")


@pytest.mark.parametrize(
    ("url", "uid", "problem"),
    [
        ("https://127.0.0.1:6443", 0, "does not run as root"),
        ("https://10.0.0.1:6443", 1000, "is not on loopback"),
        ("https://example.com", 1000, "is not on loopback"),
    ],
)
def test_root_and_servers_elsewhere_are_refused(url: str, uid: int, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        refuse_unfit(url, uid)
    refuse_unfit("https://localhost:6443", 1000)
