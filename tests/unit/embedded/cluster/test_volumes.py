"""Claims of pods and StatefulSets in the simulated cluster."""

from __future__ import annotations

from typing import Any

import pytest

from kueuelib.api.kinds import (
    EVENTS,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    PODS,
    STATEFUL_SETS,
)
from kueuelib.embedded.cluster.volumes import new_volume, volume_for

Obj = dict[str, Any]


def claim(name: str = "data", size: str = "1Gi", **spec: Any) -> Obj:
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": size}},
        "volumeMode": "Filesystem",
        **spec,
    }
    return {"metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"}, "spec": spec}


def volume(name: str = "v", size: str = "1Gi", phase: str = "Available", **spec: Any) -> Obj:
    spec = {
        "accessModes": ["ReadWriteOnce", "ReadOnlyMany"],
        "capacity": {"storage": size},
        "volumeMode": "Filesystem",
        "hostPath": {"path": "/data"},
        **spec,
    }
    meta = {"name": name, "labels": {"disk": "fast"}}
    return {"metadata": meta, "spec": spec, "status": {"phase": phase}}


def chosen(wanted: Obj, *volumes: Obj) -> str | None:
    found = volume_for(wanted, volumes)
    return found and found["metadata"]["name"]


@pytest.mark.parametrize(
    ("wanted", "offered", "fits"),
    [
        (claim(), volume(), True),
        (claim(size="2Gi"), volume(), False),
        (claim(storageClassName=""), volume(), True),
        (claim(storageClassName="fast"), volume(), False),
        (claim(storageClassName="fast"), volume(storageClassName="fast"), True),
        (claim(accessModes=["ReadWriteMany"]), volume(), False),
        (claim(volumeMode="Block"), volume(), False),
        (claim(selector={"matchLabels": {"disk": "fast"}}), volume(), True),
        (claim(selector={"matchLabels": {"disk": "slow"}}), volume(), False),
        (claim(), volume(phase="Released"), False),
        (claim(), volume(claimRef={"namespace": "default", "name": "data"}), True),
        (claim(), volume(claimRef={"namespace": "default", "name": "data", "uid": "x"}), False),
        (claim(), volume(claimRef={"namespace": "other", "name": "data"}), False),
        (claim(volumeName="w"), volume(), False),
        (claim(volumeName="v"), volume(), True),
    ],
)
def test_a_volume_fits_or_does_not(wanted: Obj, offered: Obj, fits: bool) -> None:
    assert chosen(wanted, offered) == ("v" if fits else None)


def test_the_smallest_volume_is_taken_unless_one_waits_for_the_claim() -> None:
    small, big = volume("small", "2Gi"), volume("big", "9Gi")
    assert chosen(claim(), big, small) == "small"
    reserved = volume("kept", "10Gi", claimRef={"namespace": "default", "name": "data"})
    assert chosen(claim(), big, small, reserved) == "kept"


@pytest.mark.parametrize(
    "spec",
    [{"storageClassName": ""}, {"volumeName": "v"}, {"selector": {"matchLabels": {"disk": "x"}}}],
)
def test_no_volume_is_made_for_a_claim_that_asks_for_an_existing_one(spec: Obj) -> None:
    assert new_volume(claim(**spec)) is None
    assert new_volume(claim()) is not None


async def test_a_pod_waits_for_its_claim_and_starts_when_it_is_bound(sandbox) -> None:
    volumes = [{"name": "a", "persistentVolumeClaim": {"claimName": "data"}}]
    await sandbox.pod("a", volumes=volumes)
    assert _why(await sandbox.get(PODS, "a")) == 'persistentvolumeclaim "data" not found'
    await sandbox.create(PERSISTENT_VOLUME_CLAIMS, _new(claim(storageClassName="")))
    assert _why(await sandbox.get(PODS, "a")) == "pod has unbound immediate PersistentVolumeClaims"
    (event,) = [
        each
        for each in (await sandbox.service.list(EVENTS)).items
        if each["reason"] == "FailedBinding"
    ]
    assert event["message"].startswith("no persistent volumes available for this claim")
    await sandbox.create(PERSISTENT_VOLUMES, _new(volume()))
    assert (await sandbox.get(PODS, "a"))["status"]["phase"] == "Running"
    bound = await sandbox.get(PERSISTENT_VOLUME_CLAIMS, "data")
    assert bound["status"]["phase"] == "Bound"
    assert bound["status"]["capacity"] == {"storage": "1Gi"}
    assert (await sandbox.get(PERSISTENT_VOLUMES, "v"))["status"]["phase"] == "Bound"
    await sandbox.delete(PERSISTENT_VOLUME_CLAIMS, "data")
    assert (await sandbox.get(PERSISTENT_VOLUMES, "v"))["status"]["phase"] == "Released"


async def test_a_volume_is_made_for_a_claim_and_goes_with_it(sandbox) -> None:
    await sandbox.create(PERSISTENT_VOLUME_CLAIMS, _new(claim(storageClassName="any")))
    bound = await sandbox.get(PERSISTENT_VOLUME_CLAIMS, "data")
    name = bound["spec"]["volumeName"]
    made = await sandbox.get(PERSISTENT_VOLUMES, name)
    assert (made["status"]["phase"], made["spec"]["storageClassName"]) == ("Bound", "any")
    await sandbox.delete(PERSISTENT_VOLUME_CLAIMS, "data")
    assert not await sandbox.exists(PERSISTENT_VOLUMES, name)


@pytest.mark.parametrize(("scaled", "left"), [("Retain", 2), ("Delete", 1)])
async def test_a_stateful_set_gets_its_claims(sandbox, scaled: str, left: int) -> None:
    await sandbox.create(STATEFUL_SETS, stateful_set(whenScaled=scaled, whenDeleted="Delete"))
    pod = await sandbox.get(PODS, "web-1")
    assert pod["status"]["phase"] == "Running"
    assert pod["spec"]["volumes"][0] == {
        "name": "www",
        "persistentVolumeClaim": {"claimName": "www-web-1"},
    }
    found = await sandbox.get(PERSISTENT_VOLUME_CLAIMS, "www-web-1")
    assert found["metadata"]["labels"] == {"app": "nginx"}
    assert found["status"]["phase"] == "Bound"
    await sandbox.patch(STATEFUL_SETS, "web", {"spec": {"replicas": 1}})
    await sandbox.pass_time(60)
    assert not await sandbox.exists(PODS, "web-1")
    assert len((await sandbox.service.list(PERSISTENT_VOLUME_CLAIMS)).items) == left
    await sandbox.delete(STATEFUL_SETS, "web")
    await sandbox.pass_time(60)
    assert not (await sandbox.service.list(PERSISTENT_VOLUME_CLAIMS)).items


def stateful_set(**policy: str) -> Obj:
    mount = {"name": "www", "mountPath": "/usr/share/nginx/html"}
    container = {"name": "nginx", "image": "nginx", "volumeMounts": [mount]}
    template = {"metadata": {"labels": {"app": "nginx"}}, "spec": {"containers": [container]}}
    asked = claim("www")["spec"]
    spec = {
        "replicas": 2,
        "serviceName": "nginx",
        "selector": {"matchLabels": {"app": "nginx"}},
        "template": template,
        "volumeClaimTemplates": [{"metadata": {"name": "www"}, "spec": asked}],
        "persistentVolumeClaimRetentionPolicy": policy,
    }
    return {"metadata": {"name": "web", "namespace": "default"}, "spec": spec}


def _new(obj: Obj) -> Obj:
    meta = {key: value for key, value in obj["metadata"].items() if key != "uid"}
    return {"metadata": meta, "spec": obj["spec"]}


def _why(pod: Obj) -> str:
    (condition,) = [each for each in pod["status"]["conditions"] if each["type"] == "PodScheduled"]
    return str(condition["message"]).partition("available: ")[2].rstrip(".")
