"""Deployments and Services in the simulated cluster, and beside it in a real control plane."""

from __future__ import annotations

import random
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from real_plane import lacking, real_plane
from rest import Obj, Rest, condition, eventually, is_true

from kueuelib.testing.background import BackgroundServer

APPS = "/apis/apps/v1/namespaces/default"
DEPLOYMENTS, SETS = f"{APPS}/deployments", f"{APPS}/replicasets"
CORE = "/api/v1/namespaces/default"
PODS, SERVICES = f"{CORE}/pods", f"{CORE}/services"
SLICES = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
REVISION = "deployment.kubernetes.io/revision"
SURGE = 2
NEEDS_KUBECTL = pytest.mark.skipif(
    shutil.which("kubectl") is None, reason="there is no kubectl on the PATH"
)


@contextmanager
def simulated(folder: Path) -> Iterator[Path]:
    with BackgroundServer(simulate=True) as server:
        yield server.write_kubeconfig(folder / "kubeconfig")


@contextmanager
def real(folder: Path) -> Iterator[Path]:
    with real_plane(folder) as plane:
        yield plane.kubeconfig


REAL = pytest.param(
    real, marks=[pytest.mark.slow, pytest.mark.skipif(bool(lacking()), reason=lacking())]
)


@pytest.fixture(scope="module", params=[simulated, REAL])
def kubeconfig(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Path]:
    with request.param(tmp_path_factory.mktemp("plane")) as path:
        yield path


@pytest.fixture
def rest(kubeconfig: Path) -> Iterator[Rest]:
    with Rest(kubeconfig) as client:
        yield client


@pytest.fixture
def kubectl(kubeconfig: Path) -> Callable[..., str]:
    def run(*args: str) -> str:
        command = ["kubectl", f"--kubeconfig={kubeconfig}", *args]
        ended = subprocess.run(command, check=False, capture_output=True, text=True, timeout=240)
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    return run


def template(name: str, image: str, **pod: object) -> Obj:
    container = {"name": "c", "image": image, "ports": [{"name": "http", "containerPort": 8080}]}
    spec = {"containers": [container], "terminationGracePeriodSeconds": 0, **pod}
    return {"metadata": {"labels": {"app": name}}, "spec": spec}


def create(rest: Rest, name: str, **spec: object) -> str:
    """The path of a new Deployment."""
    wanted = {
        "selector": {"matchLabels": {"app": name}},
        "template": template(name, "i:1"),
        **spec,
    }
    rest.create(DEPLOYMENTS, {"metadata": {"name": name}, "spec": wanted})
    return f"{DEPLOYMENTS}/{name}"


def is_complete(rest: Rest, path: str) -> bool:
    stored = rest.get(path)
    status, count = stored["status"], stored["spec"]["replicas"]
    counts = [status.get(f"{each}eplicas", 0) for each in ("r", "updatedR", "availableR")]
    seen = status.get("observedGeneration") == stored["metadata"]["generation"]
    return seen and counts == [count] * 3 and is_true(stored, "Available")


def alive(rest: Rest, name: str) -> list[Obj]:
    pods = rest.items(f"{PODS}?labelSelector=app={name}")
    running = [pod for pod in pods if pod["status"].get("phase") in ("Pending", "Running")]
    return [pod for pod in running if "deletionTimestamp" not in pod["metadata"]]


def sets_of(rest: Rest, name: str) -> list[Obj]:
    return rest.items(f"{SETS}?labelSelector=app={name}")


@NEEDS_KUBECTL
def test_what_kubectl_does_with_a_deployment(kubectl: Callable[..., str]) -> None:
    web = "deployment/web"
    wait = ("rollout", "status", web, "--timeout=180s")
    kubectl("create", "deployment", "web", "--image=nginx:1", "--replicas=3", "--port=80")
    assert kubectl(*wait).endswith('deployment "web" successfully rolled out\n')
    kubectl("set", "image", web, "nginx=nginx:2")
    kubectl(*wait)
    history = kubectl("rollout", "history", web).split("\n")
    assert [line.split()[0] for line in history[2:] if line] == ["1", "2"]
    kubectl("rollout", "undo", web)
    kubectl(*wait)
    history = kubectl("rollout", "history", web).split("\n")
    assert [line.split()[0] for line in history[2:] if line] == ["2", "3"]
    assert "nginx:1" in kubectl("rollout", "history", web, "--revision=3")
    kubectl("rollout", "pause", web)
    kubectl("set", "image", web, "nginx=nginx:3")
    assert "nginx:3" not in kubectl("get", "rs", "-o", "wide")
    kubectl("rollout", "resume", web)
    kubectl(*wait)
    kubectl("rollout", "restart", web)
    kubectl("scale", web, "--replicas=4")
    kubectl(*wait)
    kubectl("expose", web)
    assert kubectl("get", web, "--no-headers").split()[1:4] == ["4/4", "4", "4"]
    sizes = [line.split()[1:4] for line in kubectl("get", "rs", "--no-headers").splitlines()]
    assert sorted(sizes) == [["0"] * 3] * 3 + [["4"] * 3]
    kubectl("wait", web, "--for=condition=Available", "--timeout=180s")
    assert "Scaled up replica set" in kubectl("describe", web)
    assert "web-" in kubectl("get", "endpointslices")
    kubectl("delete", web, "service/web")
    eventually(lambda: "web" not in kubectl("get", "deployments,rs,endpointslices,services"))


@pytest.mark.parametrize("seed", [1, 2])
def test_random_edits(rest: Rest, seed: int) -> None:
    """Never too many pods, and in the end all of them as they were asked for last."""
    draw, name = random.Random(seed), f"edited{seed}"
    rolling = {"maxSurge": SURGE, "maxUnavailable": 1}
    path = create(rest, name, replicas=3, strategy={"rollingUpdate": rolling})
    eventually(lambda: is_complete(rest, path))
    revisions, most = [1], 3
    for _ in range(12):
        replicas = draw.randint(1, 5)
        nowhere = {"nodeSelector": draw.choice([None, None, {"no": "where"}])}
        edit: Obj = draw.choice(
            [
                {"replicas": replicas},
                {"template": template(name, f"i:{draw.randint(1, 4)}", **nowhere)},
                {"paused": draw.choice([True, False, False])},
                {},
            ]
        )
        if edit:
            rest.merge(path, {"spec": edit})
            most = max(most, edit.get("replicas", 0))
        elif pods := alive(rest, name):
            lost = draw.choice(pods)["metadata"]["name"]
            rest.merge(f"{PODS}/{lost}/status", {"status": {"phase": "Failed"}})
        for _ in range(draw.randint(1, 8)):
            assert len(alive(rest, name)) <= most + SURGE
            stored = rest.get(path)
            revisions.append(int(stored["metadata"]["annotations"][REVISION]))
    last = template(name, "i:5", nodeSelector=None)
    rest.merge(path, {"spec": {"paused": False, "template": last, "revisionHistoryLimit": 1}})
    eventually(lambda: is_complete(rest, path))
    eventually(lambda: len(sets_of(rest, name)) == 2)
    sets = sets_of(rest, name)
    numbers = [int(each["metadata"]["annotations"][REVISION]) for each in sets]
    assert revisions == sorted(revisions)
    assert max(numbers) > max(revisions)
    assert {pod["spec"]["containers"][0]["image"] for pod in alive(rest, name)} == {"i:5"}
    rest.delete(path)
    eventually(lambda: sets_of(rest, name) == [] == alive(rest, name))


def test_a_rollout_that_gets_stuck(rest: Rest) -> None:
    strategy = {"rollingUpdate": {"maxSurge": 2, "maxUnavailable": "30%"}}
    path = create(
        rest, "stuck", replicas=10, strategy=strategy, progressDeadlineSeconds=3, minReadySeconds=1
    )
    eventually(lambda: is_complete(rest, path))

    def sizes() -> list[int]:
        return sorted(each["spec"]["replicas"] for each in sets_of(rest, "stuck"))

    rest.merge(path, {"spec": {"template": template("stuck", "i:2", nodeSelector={"no": "one"})}})
    eventually(lambda: sizes() == [5, 7])
    eventually(lambda: condition(rest.get(path), "Progressing")["status"] == "False")
    stored = rest.get(path)
    assert condition(stored, "Progressing")["reason"] == "ProgressDeadlineExceeded"
    assert is_true(stored, "Available")
    rest.merge(path, {"spec": {"replicas": 20}})
    eventually(lambda: sizes() == [9, 13])
    rest.merge(path, {"spec": {"strategy": {"type": "Recreate", "rollingUpdate": None}}})
    fixed = template("stuck", "i:2", nodeSelector=None)
    rest.merge(path, {"spec": {"template": fixed, "replicas": 2}})
    eventually(lambda: is_complete(rest, path))
    assert condition(rest.get(path), "Progressing")["reason"] == "NewReplicaSetAvailable"
    rest.delete(path)


def test_pods_are_adopted_and_released(rest: Rest) -> None:
    labels = {"app": "own"}
    own = {"metadata": {"name": "own", "labels": labels}, "spec": template("own", "i:1")["spec"]}
    rest.create(PODS, own)
    spec = {"replicas": 2, "selector": {"matchLabels": labels}, "template": template("own", "i:1")}
    rest.create(SETS, {"metadata": {"name": "own", "labels": labels}, "spec": spec})
    eventually(lambda: rest.get(f"{SETS}/own")["status"].get("readyReplicas") == 2)
    assert len(alive(rest, "own")) == 2
    assert rest.get(f"{PODS}/own")["metadata"]["ownerReferences"][0]["kind"] == "ReplicaSet"
    rest.merge(f"{PODS}/own", {"metadata": {"labels": {"app": "debugged"}}})
    eventually(lambda: "ownerReferences" not in rest.get(f"{PODS}/own")["metadata"])
    eventually(lambda: len(alive(rest, "own")) == 2)
    rest.delete(f"{SETS}/own", propagationPolicy="Orphan")
    eventually(lambda: all("ownerReferences" not in pod["metadata"] for pod in alive(rest, "own")))
    create(rest, "own", replicas=2)
    eventually(lambda: is_complete(rest, f"{DEPLOYMENTS}/own"))
    assert len(alive(rest, "own")) == 4, "those without a hash are nobody's"
    rest.delete(f"{DEPLOYMENTS}/own")


def test_what_stands_behind_a_service(rest: Rest) -> None:
    ports = [
        {"name": "web", "port": 80, "targetPort": "http"},
        {"name": "raw", "port": 81, "targetPort": 9000},
        {"name": "none", "port": 82, "targetPort": "missing"},
    ]
    meta = {"name": "front", "labels": {"team": "a"}}
    spec = {"selector": {"app": "back"}, "ports": ports}
    rest.create(SERVICES, {"metadata": meta, "spec": spec})

    def behind() -> list[Obj]:
        return rest.items(f"{SLICES}?labelSelector=kubernetes.io/service-name=front")

    eventually(lambda: [each["endpoints"] or [] for each in behind()] == [[]])
    path = create(rest, "back", replicas=3)
    eventually(lambda: is_complete(rest, path))
    for number, pod in enumerate(alive(rest, "back"), 1):
        address = {"podIP": f"10.200.0.{number}", "podIPs": [{"ip": f"10.200.0.{number}"}]}
        rest.merge(f"{PODS}/{pod['metadata']['name']}/status", {"status": address})
    eventually(lambda: [len(each["endpoints"] or ()) for each in behind()] == [3])
    first, *_ = alive(rest, "back")
    unready = [{"type": "Ready", "status": "False", "lastTransitionTime": "2024-01-01T00:00:00Z"}]
    rest.merge(f"{PODS}/{first['metadata']['name']}/status", {"status": {"conditions": unready}})

    def states() -> list[tuple[bool, bool, bool]]:
        (found,) = behind()
        conditions = [each["conditions"] for each in found["endpoints"]]
        keys = ("ready", "serving", "terminating")
        return sorted(tuple(each[key] for key in keys) for each in conditions)

    eventually(lambda: states() == [(False, False, False), *[(True, True, False)] * 2])
    (found,) = behind()
    numbers = {each["name"]: each["port"] for each in found["ports"]}
    assert numbers == {"web": 8080, "raw": 9000}
    (subset,) = rest.get(f"{CORE}/endpoints/front")["subsets"]
    counts = len(subset["addresses"]), len(subset["notReadyAddresses"])
    assert counts == (2, 1)
    assert {each["name"]: each["port"] for each in subset["ports"]} == numbers
    rest.merge(f"{SERVICES}/front", {"spec": {"publishNotReadyAddresses": True}})
    eventually(lambda: {ready for ready, *_ in states()} == {True})
    rest.delete(f"{SERVICES}/front")
    eventually(lambda: behind() == [])
    rest.delete(path)
