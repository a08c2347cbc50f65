"""The StatefulSet controller: creates pods in order, and replaces ended or outdated ones.

Partitions, the strategy OnDelete and ControllerRevisions are not simulated.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs
import orjson

from kueuelib.api.kinds import PERSISTENT_VOLUME_CLAIMS, PODS, STATEFUL_SETS
from kueuelib.api.meta import Obj, ObjectKey, Resource, controller_of, labels_of
from kueuelib.embedded.builtins.fields import listed, section
from kueuelib.embedded.builtins.volume_rules import with_claims
from kueuelib.embedded.cluster.controller import ControllerTools, SimulatedController
from kueuelib.embedded.cluster.owned_pods import from_template, is_active, is_deleted, is_ready
from kueuelib.embedded.cluster.pod_life import is_terminal
from kueuelib.embedded.decoding import copy_json
from kueuelib.embedded.verbs import Propagation
from kueuelib.errors import AlreadyExists, NotFound
from kueuelib.machinery.store import Delta

INDEX = "apps.kubernetes.io/pod-index"
REVISION = "controller-revision-hash"
_NAME = "statefulset.kubernetes.io/pod-name"
_DIGITS = 10


@attrs.frozen
class SetStep:
    """The next step.

    Attributes:
        create: ordinals of pods to make.
        delete: raw pods to delete.
    """

    create: tuple[int, ...] = ()
    delete: tuple[Obj, ...] = ()


class StatefulSetController(SimulatedController[ObjectKey]):
    """Makes the pods of StatefulSets, and writes their counts into the status."""

    name = "statefulset"

    def __init__(self, parts: ControllerTools) -> None:
        super().__init__(parts)
        self._sets = parts.kinds.of(STATEFUL_SETS)
        self._claims = parts.kinds.of(PERSISTENT_VOLUME_CLAIMS)
        self._sets.add_handler(self._on_set)
        self._pods.add_handler(self._on_pod)

    def _on_set(self, delta: Delta[Obj]) -> None:
        if delta.new is not None:
            self.loop.add(delta.key)

    def _on_pod(self, delta: Delta[Obj]) -> None:
        for pod in (delta.old, delta.new):
            ref = None if pod is None else controller_of(pod)
            if ref is not None and ref.get("kind") == STATEFUL_SETS.kind:
                self.loop.add(ObjectKey(delta.key.namespace, ref["name"]))

    async def _reconcile(self, key: ObjectKey) -> float | None:
        stateful_set = self._sets.get(key)
        if stateful_set is None or is_deleted(stateful_set):
            return None
        owned = self._pods.owned_by(stateful_set["metadata"]["uid"])
        pods = {number: pod for pod in owned if (number := ordinal_of(pod, key.name)) is not None}
        status = status_of(stateful_set, pods)
        if status != (stateful_set.get("status") or {}):
            await self._sets.update_status(stateful_set, status)
        step = next_step(stateful_set, pods)
        for pod in step.delete:
            for name, patch in given_up(stateful_set, pod):
                with contextlib.suppress(NotFound):
                    await self._claims.patch(name, patch)
            await self._pods.delete(pod, propagation=Propagation.BACKGROUND)
        for ordinal in step.create:
            for claim in new_claims(stateful_set, ordinal):
                with contextlib.suppress(AlreadyExists):
                    await self._claims.create(claim)
            await self._pods.create(new_pod(stateful_set, ordinal))
        return None


def next_step(stateful_set: Mapping[str, Any], pods: Mapping[int, Obj]) -> SetStep:
    """The next step for a raw StatefulSet with these raw pods, by ordinal.

    With the policy OrderedReady, one pod at a time is created or deleted, once all earlier ones are
    ready.
    """
    spec = stateful_set["spec"]
    ordered = spec.get("podManagementPolicy") != "Parallel"
    create: list[int] = []
    delete: list[Obj] = []
    ordinals = _ordinals(stateful_set)
    for ordinal in ordinals:
        pod = pods.get(ordinal)
        if pod is None:
            create.append(ordinal)
        elif is_terminal(pod) and not is_deleted(pod):
            delete.append(pod)
        elif _is_healthy(pod):
            continue
        if ordered:
            return SetStep(tuple(create), tuple(delete))
    surplus = sorted((each for each in pods if each not in ordinals), reverse=True)
    condemned = [pods[each] for each in surplus][: 1 if ordered else None]
    delete += [pod for pod in condemned if not is_deleted(pod)]
    if create or delete or condemned:
        return SetStep(tuple(create), tuple(delete))
    for _, pod in sorted(pods.items(), reverse=True):
        if labels_of(pod).get(REVISION) != revision_of(stateful_set):
            return SetStep((), () if is_deleted(pod) else (pod,))
        if not _is_healthy(pod):
            break
    return SetStep()


def status_of(stateful_set: Mapping[str, Any], pods: Mapping[int, Obj]) -> Obj:
    """The status of a raw StatefulSet with these raw pods, by ordinal."""
    revision = revision_of(stateful_set)
    ready = sum(map(_is_healthy, pods.values()))
    updated = sum(labels_of(pod).get(REVISION) == revision for pod in pods.values())
    counts = {"readyReplicas": ready, "currentReplicas": updated, "updatedReplicas": updated}
    return {
        "observedGeneration": stateful_set["metadata"].get("generation", 1),
        "replicas": len(pods),
        "availableReplicas": ready,
        "currentRevision": revision,
        "updateRevision": revision,
        **{name: count for name, count in counts.items() if count},
    }


def revision_of(stateful_set: Mapping[str, Any]) -> str:
    """The label value of pods from the present template."""
    text = orjson.dumps(stateful_set["spec"]["template"], option=orjson.OPT_SORT_KEYS)
    digest = hashlib.sha256(text).hexdigest()[:_DIGITS]
    return f"{stateful_set['metadata']['name']}-{digest}"


def ordinal_of(pod: Mapping[str, Any], name: str) -> int | None:
    """The ordinal of a pod; None if its name does not belong to the StatefulSet."""
    prefix, _, digits = pod["metadata"]["name"].rpartition("-")
    return int(digits) if prefix == name and digits.isdecimal() else None


def new_pod(stateful_set: Mapping[str, Any], ordinal: int) -> Obj:
    """The pod of an ordinal from the template of a StatefulSet."""
    pod = from_template(stateful_set)
    name = f"{stateful_set['metadata']['name']}-{ordinal}"
    labels = {_NAME: name, INDEX: str(ordinal), REVISION: revision_of(stateful_set)}
    pod["metadata"] |= {"name": name, "labels": {**labels_of(pod), **labels}}
    pod["spec"] |= {"hostname": name, "subdomain": stateful_set["spec"].get("serviceName") or ""}
    templates = list(map(_name_of, _claims(stateful_set)))
    if templates:
        claims = {each: f"{each}-{name}" for each in templates}
        pod["spec"]["volumes"] = with_claims(pod["spec"], claims)
    return pod


def new_claims(stateful_set: Mapping[str, Any], ordinal: int) -> Iterator[Obj]:
    """The PersistentVolumeClaims of an ordinal, from the claim templates of a StatefulSet."""
    meta, spec = stateful_set["metadata"], stateful_set["spec"]
    for template in _claims(stateful_set):
        claim: Obj = copy_json({"spec": template["spec"]})
        given = section(template, "metadata")
        labels = {**labels_of(template), **section(spec, "selector", "matchLabels")}
        claim["metadata"] = {
            "name": f"{_name_of(template)}-{meta['name']}-{ordinal}",
            "namespace": meta["namespace"],
            "labels": labels,
        }
        if given.get("annotations"):
            claim["metadata"]["annotations"] = dict(given["annotations"])
        if _policy(stateful_set, "whenDeleted") == "Delete":
            claim["metadata"]["ownerReferences"] = [_owned_by(stateful_set, STATEFUL_SETS)]
        yield claim


def given_up(stateful_set: Mapping[str, Any], pod: Obj) -> Iterator[tuple[ObjectKey, Obj]]:
    """The claims that go with a surplus pod, each with the merge patch that lets it."""
    meta = pod["metadata"]
    ordinal = ordinal_of(pod, stateful_set["metadata"]["name"])
    if _policy(stateful_set, "whenScaled") == "Delete" and ordinal not in _ordinals(stateful_set):
        for template in _claims(stateful_set):
            key = ObjectKey(meta["namespace"], f"{_name_of(template)}-{meta['name']}")
            yield key, {"metadata": {"ownerReferences": [_owned_by(pod, PODS)]}}


def _claims(stateful_set: Mapping[str, Any]) -> Sequence[Obj]:
    return listed(stateful_set["spec"], "volumeClaimTemplates")


def _name_of(template: Mapping[str, Any]) -> str:
    return str(section(template, "metadata").get("name") or "")


def _policy(stateful_set: Mapping[str, Any], when: str) -> str:
    policy = section(stateful_set["spec"], "persistentVolumeClaimRetentionPolicy")
    return str(policy.get(when) or "Retain")


def _owned_by(owner: Mapping[str, Any], resource: Resource) -> Obj:
    meta = owner["metadata"]
    ref = {"apiVersion": resource.api_version, "kind": resource.kind}
    return {**ref, "name": meta["name"], "uid": meta["uid"], "controller": True}


def _ordinals(stateful_set: Mapping[str, Any]) -> range:
    spec = stateful_set["spec"]
    first = int((spec.get("ordinals") or {}).get("start") or 0)
    count = spec.get("replicas")
    return range(first, first + (1 if count is None else int(count)))


def _is_healthy(pod: Mapping[str, Any]) -> bool:
    return is_ready(pod) and is_active(pod)
