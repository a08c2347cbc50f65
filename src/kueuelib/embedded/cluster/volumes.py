"""Binds PersistentVolumeClaims: to a volume that fits, otherwise to one that is made for the claim.

There are no StorageClasses here, so any name of one makes a volume, and so does a claim that names
none. A claim with the empty name, or with a selector, takes existing volumes only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from kueuelib.api.kinds import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES
from kueuelib.api.meta import Obj, ObjectKey, labels_of
from kueuelib.api.quantity import Quantity
from kueuelib.embedded.builtins.fields import section
from kueuelib.embedded.cluster.contract import SIMULATED
from kueuelib.embedded.cluster.controller import ControllerTools, SimulatedController
from kueuelib.machinery.selectors import from_label_selector
from kueuelib.machinery.store import Delta

NO_VOLUME: Final = "no persistent volumes available for this claim and no storage class is set"
_COMPONENT: Final = "persistentvolume-controller"
_BOUND, _BY = "pv.kubernetes.io/bind-completed", "pv.kubernetes.io/provisioned-by"


def is_bound(claim: Mapping[str, Any]) -> bool:
    """Whether pods may use the claim."""
    return section(claim, "status").get("phase") == "Bound"


def volume_for(claim: Mapping[str, Any], volumes: Iterable[Obj]) -> Obj | None:
    """The volume for a claim: one that names it, otherwise the smallest that fits; or None."""
    reserved, fitting = list[Obj](), list[Obj]()
    wanted = claim["spec"].get("volumeName")
    for volume in volumes:
        if wanted and wanted != volume["metadata"]["name"]:
            continue
        if volume["metadata"].get("deletionTimestamp"):
            continue
        if section(volume, "spec", "claimRef"):
            if is_for(volume, claim):
                reserved.append(volume)
        elif section(volume, "status").get("phase") == "Available" and _fits(volume, claim):
            fitting.append(volume)
    return min(reserved or fitting, key=_size, default=None)


def is_for(volume: Mapping[str, Any], claim: Mapping[str, Any]) -> bool:
    """Whether a volume refers to the claim; a reference without a UID is for any of the name."""
    ref, meta = section(volume, "spec", "claimRef"), claim["metadata"]
    named = (ref.get("namespace"), ref.get("name")) == (meta["namespace"], meta["name"])
    return named and ref.get("uid") in (None, "", meta["uid"])


def _size(volume: Mapping[str, Any]) -> tuple[Quantity, str]:
    size = section(volume, "spec", "capacity").get("storage", 0)
    return Quantity.parse(size), volume["metadata"]["name"]


def _fits(volume: Mapping[str, Any], claim: Mapping[str, Any]) -> bool:
    spec, wanted = volume["spec"], claim["spec"]
    selector = wanted.get("selector")
    asked = section(wanted, "resources", "requests").get("storage", 0)
    return (
        (spec.get("storageClassName") or "") == (wanted.get("storageClassName") or "")
        and set(wanted["accessModes"]) <= set(spec["accessModes"])
        and spec.get("volumeMode") == wanted.get("volumeMode")
        and _size(volume)[0] >= Quantity.parse(asked)
        and (selector is None or from_label_selector(selector).matches(labels_of(volume)))
    )


def new_volume(claim: Mapping[str, Any]) -> Obj | None:
    """The volume that is made for a claim; None if it takes existing ones only."""
    spec, meta = claim["spec"], claim["metadata"]
    if spec.get("volumeName") or spec.get("selector") or spec.get("storageClassName") == "":
        return None
    name = f"pvc-{meta['uid']}"
    made = {
        "capacity": {"storage": spec["resources"]["requests"]["storage"]},
        "accessModes": list(spec["accessModes"]),
        "persistentVolumeReclaimPolicy": "Delete",
        "hostPath": {"path": f"/simulated/{name}"},
        "claimRef": reference_to(claim),
    }
    made |= {key: spec[key] for key in ("storageClassName", "volumeMode") if spec.get(key)}
    meta = {"name": name, "annotations": {_BY: SIMULATED}}
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": meta, "spec": made}


def reference_to(claim: Mapping[str, Any]) -> Obj:
    """The reference of a volume to its claim."""
    meta = claim["metadata"]
    ref = {key: meta[key] for key in ("namespace", "name", "uid")}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", **ref}


class VolumeController(SimulatedController[ObjectKey]):
    """Binds claims, and deletes or releases the volumes of deleted ones.

    The keys are those of claims, and those of volumes, which have no namespace.
    """

    name = "volumes"

    def __init__(self, parts: ControllerTools) -> None:
        super().__init__(parts)
        self._claims = parts.kinds.of(PERSISTENT_VOLUME_CLAIMS)
        self._volumes = parts.kinds.of(PERSISTENT_VOLUMES)
        self._waiting: set[ObjectKey] = set()
        self._claims.add_handler(self._on_claim)
        self._volumes.add_handler(self._on_volume)

    def _on_claim(self, delta: Delta[Obj]) -> None:
        self.loop.add(delta.key)
        if delta.old is not None and (volume := delta.old["spec"].get("volumeName")):
            self.loop.add(ObjectKey("", volume))

    def _on_volume(self, delta: Delta[Obj]) -> None:
        self.loop.add(delta.key, *self._waiting)

    async def _reconcile(self, key: ObjectKey) -> float | None:
        await (self._bind(key) if key.namespace else self._look_after(key))
        return None

    async def _bind(self, key: ObjectKey) -> None:
        self._waiting.discard(key)
        claim = self._claims.get(key)
        if claim is None or is_bound(claim) or claim["metadata"].get("deletionTimestamp"):
            return
        volume = volume_for(claim, self._volumes.store.items())
        if volume is None and (made := new_volume(claim)):
            volume = await self._volumes.create(made)
            text = f"Successfully provisioned volume {made['metadata']['name']}"
            self._events.normal(claim, _COMPONENT, "ProvisioningSucceeded", text)
        if volume is None:
            self._waiting.add(key)
            self._events.normal(claim, _COMPONENT, "FailedBinding", NO_VOLUME)
            return
        name, spec = volume["metadata"]["name"], volume["spec"]
        if section(spec, "claimRef").get("uid") != claim["metadata"]["uid"]:
            version = {"resourceVersion": volume["metadata"]["resourceVersion"]}
            patch = {"metadata": version, "spec": {"claimRef": reference_to(claim)}}
            volume = await self._volumes.patch(ObjectKey("", name), patch)
        await self._volumes.update_status(volume, {**section(volume, "status"), "phase": "Bound"})
        patch = {"metadata": {"annotations": {_BOUND: "yes"}}, "spec": {"volumeName": name}}
        claim = await self._claims.patch(key, patch)
        status = {key: spec[key] for key in ("accessModes", "capacity")}
        await self._claims.update_status(claim, {"phase": "Bound", **status})

    async def _look_after(self, key: ObjectKey) -> None:
        volume = self._volumes.get(key)
        if volume is None or volume["metadata"].get("deletionTimestamp"):
            return
        phase, ref = section(volume, "status").get("phase"), section(volume, "spec", "claimRef")
        claim = self._claims.get(ObjectKey(ref.get("namespace", ""), ref.get("name", "")))
        if phase != "Bound":
            wanted = phase if phase == "Released" else "Available"
        elif claim is not None and is_for(volume, claim):
            return
        elif volume["spec"].get("persistentVolumeReclaimPolicy") == "Delete":
            await self._volumes.delete(volume)
            return
        else:
            wanted = "Released"
        if wanted != phase:
            await self._volumes.update_status(volume, {"phase": wanted})
