"""The controllers of Endpoints and EndpointSlices.

Which pods stand behind a Service, and in which objects, is decided by pure functions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from ipaddress import ip_address
from typing import Any

import attrs
import orjson

from kueuelib.api.kinds import ENDPOINT_SLICES, ENDPOINTS, SERVICES
from kueuelib.api.meta import (
    Obj,
    ObjectKey,
    annotations_of,
    controller_of,
    key_of,
    labels_of,
    owner_reference,
)
from kueuelib.embedded.builtins.fields import listed, section
from kueuelib.embedded.builtins.network_rules import HEADLESS, target_of
from kueuelib.embedded.cluster.controller import ControllerTools, SimulatedController
from kueuelib.embedded.cluster.owned_pods import is_deleted, is_ready
from kueuelib.embedded.cluster.pod_life import is_terminal
from kueuelib.machinery.store import Delta

SERVICE_NAME = "kubernetes.io/service-name"
MANAGED_BY = "endpointslice.kubernetes.io/managed-by"
CONTROLLER = "endpointslice-controller.k8s.io"
ZONE = "topology.kubernetes.io/zone"
MOST_IN_SLICE = 100
MOST_IN_ENDPOINTS = 1000
_IS_HEADLESS = "service.kubernetes.io/headless"
_ENDPOINTS_MANAGED_BY = "endpoints.kubernetes.io/managed-by"
_OVER_CAPACITY = "endpoints.kubernetes.io/over-capacity"
_RESERVED = (SERVICE_NAME, MANAGED_BY, _IS_HEADLESS)


def has_endpoints(service: Mapping[str, Any]) -> bool:
    """Whether its selector decides what stands behind a Service."""
    spec = service["spec"]
    return spec.get("selector") is not None and spec.get("type") != "ExternalName"


def facts(pod: Mapping[str, Any]) -> tuple[Any, ...]:
    """What Services see of a pod: while it is the same, nothing changes behind them."""
    spec, status = pod["spec"], section(pod, "status")
    names = spec.get("hostname"), spec.get("subdomain"), spec.get("nodeName")
    addresses = [each.get("ip") for each in listed(status, "podIPs")]
    life = is_deleted(pod), is_ready(pod), is_terminal(pod)
    return labels_of(pod), names, addresses, life


def _is_headless(service: Mapping[str, Any]) -> bool:
    return service["spec"].get("clusterIP") in (None, "", HEADLESS)


def _ports(service: Mapping[str, Any], pod: Mapping[str, Any]) -> list[Obj]:
    """The ports of a Service with their numbers in a pod; without those that it does not have."""
    ports = []
    for port in listed(service["spec"], "ports"):
        number = target_of(port, pod)
        if number is not None:
            one = {"name": port.get("name") or "", "protocol": port["protocol"], "port": number}
            named = port.get("appProtocol")
            ports.append(one if named is None else {**one, "appProtocol": named})
    return ports


def _addresses(pod: Mapping[str, Any]) -> list[str]:
    """The IPv4 addresses of a pod, without those of loopback, which the API refuses there."""
    texts = [str(each["ip"]) for each in listed(section(pod, "status"), "podIPs")]
    addresses = [ip_address(each) for each in texts]
    return [str(each) for each in addresses if each.version == 4 and not each.is_loopback]


def _named(service: Mapping[str, Any], pod: Mapping[str, Any]) -> Obj:
    """What Endpoints and slices say alike about a pod."""
    meta, spec = pod["metadata"], pod["spec"]
    ref = {"kind": "Pod", **{key: meta[key] for key in ("namespace", "name", "uid")}}
    known: Obj = {"targetRef": ref}
    if spec.get("nodeName"):
        known["nodeName"] = spec["nodeName"]
    if spec.get("hostname") and spec.get("subdomain") == service["metadata"]["name"]:
        known["hostname"] = spec["hostname"]
    return known


def _open(service: Mapping[str, Any]) -> bool:
    return bool(service["spec"].get("publishNotReadyAddresses"))


# ---- EndpointSlices ------------------------------------------------------------------------------


@attrs.frozen
class SliceStep:
    """What is done about the EndpointSlices of a Service.

    Attributes:
        create: new ones.
        update: present ones with another content.
        delete: present ones.
    """

    create: tuple[Obj, ...] = ()
    update: tuple[Obj, ...] = ()
    delete: tuple[Obj, ...] = ()


@attrs.define(eq=False)
class _Filled:
    """A present slice, or None for a new one, and what it will hold."""

    old: Obj | None
    ports: list[Obj]
    endpoints: list[Obj]

    @property
    def changed(self) -> bool:
        return self.old is None or self.endpoints != list(listed(self.old, "endpoints"))


def plan_slices(
    service: Obj, pods: Iterable[Obj], zones: Mapping[str, str], present: Iterable[Obj]
) -> SliceStep:
    """The next step for the EndpointSlices of a Service: few writes, at most 100 pods in a slice.

    Args:
        service: a Service with a selector.
        pods: those that it selects.
        zones: of all nodes by name; empty if a node is in none.
        present: the slices that are there.
    """
    uid, ours, foreign = service["metadata"]["uid"], list[Obj](), list[Obj]()
    for each in present:
        ref = controller_of(each) or {}
        (ours if ref.get("uid") == uid else foreign).append(each)
    filled = list[_Filled]()
    for ports, endpoints in _groups(service, pods, zones):
        fitting = [each for each in ours if _key(listed(each, "ports")) == _key(ports)]
        filled += _fill(ports, endpoints, fitting)
    used = [each for each in filled if each.endpoints] or [_Filled(None, [], [])]
    held = [each.old for each in used if each.old is not None]
    surplus = [each for each in ours if each not in held]
    for new in used:
        if new.old is None and surplus:
            new.old = surplus.pop()
    wishes = [(each.old, _slice(service, each)) for each in used]
    return SliceStep(
        tuple(wish for old, wish in wishes if old is None),
        tuple(wish for old, wish in wishes if old is not None and not _same(wish, old)),
        (*foreign, *surplus),
    )


def _groups(
    service: Obj, pods: Iterable[Obj], zones: Mapping[str, str]
) -> list[tuple[list[Obj], dict[str, Obj]]]:
    """The endpoints by the UIDs of their pods, for each different list of ports."""
    groups: dict[bytes, tuple[list[Obj], dict[str, Obj]]] = {}
    for pod in pods:
        addresses, node = _addresses(pod), pod["spec"].get("nodeName")
        if is_terminal(pod) or not addresses or (node not in zones and not _open(service)):
            continue
        serving, terminating = is_ready(pod), is_deleted(pod)
        ready = _open(service) or (serving and not terminating)
        states = {"ready": ready, "serving": serving, "terminating": terminating}
        one = {"addresses": addresses, "conditions": states, **_named(service, pod)}
        if zone := zones.get(node):
            one["zone"] = zone
        ports = _ports(service, pod)
        groups.setdefault(_key(ports), (ports, {}))[1][pod["metadata"]["uid"]] = one
    return list(groups.values())


def _key(ports: Iterable[Mapping[str, Any]]) -> bytes:
    texts = sorted(orjson.dumps(each, option=orjson.OPT_SORT_KEYS) for each in ports)
    return b"".join(texts)


def _fill(ports: list[Obj], endpoints: dict[str, Obj], present: Sequence[Obj]) -> list[_Filled]:
    """Spreads endpoints over slices: what is in one stays there, and gaps are filled."""
    rest, filled = dict(endpoints), list[_Filled]()
    for old in present:
        uids = [section(each, "targetRef").get("uid") for each in listed(old, "endpoints")]
        filled.append(_Filled(old, ports, [rest.pop(uid) for uid in uids if uid in rest]))
    queue = list(rest.values())
    for each in sorted(filled, key=lambda each: -len(each.endpoints)):
        if each.changed and each.endpoints:
            each.endpoints += _take(queue, MOST_IN_SLICE - len(each.endpoints))
    while queue:
        fits = [each for each in filled if len(each.endpoints) + len(queue) <= MOST_IN_SLICE]
        target = max(fits, key=lambda each: len(each.endpoints), default=None)
        if target is None:
            target = _Filled(None, ports, [])
            filled.append(target)
        target.endpoints = [*target.endpoints, *_take(queue, MOST_IN_SLICE - len(target.endpoints))]
    return filled


def _take(queue: list[Obj], count: int) -> list[Obj]:
    taken = queue[:count]
    del queue[:count]
    return taken


def _slice(service: Obj, filled: _Filled) -> Obj:
    meta = service["metadata"]
    given = {key: text for key, text in labels_of(service).items() if key not in _RESERVED}
    head = {_IS_HEADLESS: ""} if _is_headless(service) else {}
    labels = {**given, **head, SERVICE_NAME: meta["name"], MANAGED_BY: CONTROLLER}
    own: Obj = {
        "generateName": f"{meta['name']}-",
        "namespace": meta["namespace"],
        "ownerReferences": [owner_reference(service)],
    }
    if filled.old is not None:
        own = filled.old["metadata"]
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {**own, "labels": labels},
        "addressType": "IPv4",
        "endpoints": filled.endpoints,
        "ports": filled.ports,
    }


def _same(wish: Obj, old: Obj) -> bool:
    if labels_of(wish) != labels_of(old) or _key(wish["ports"]) != _key(listed(old, "ports")):
        return False
    return bool(wish["endpoints"] == list(listed(old, "endpoints")))


# ---- Endpoints -----------------------------------------------------------------------------------


def endpoints_of(service: Obj, pods: Iterable[Obj], old: Obj | None) -> Obj | None:
    """The Endpoints of a Service; None if those that there are can stay.

    Args:
        service: a Service with a selector.
        pods: those that it selects.
        old: the Endpoints that there are.
    """
    subsets, cut = _cut(_subsets(service, pods))
    labels = {**labels_of(service), _ENDPOINTS_MANAGED_BY: "endpoint-controller"}
    labels.pop(_IS_HEADLESS, None)
    if _is_headless(service):
        labels[_IS_HEADLESS] = ""
    notes = {key: text for key, text in annotations_of(old or {}).items() if key != _OVER_CAPACITY}
    if cut:
        notes[_OVER_CAPACITY] = "truncated"
    if old is not None:
        before = list(listed(old, "subsets")), labels_of(old), annotations_of(old)
        if before == (subsets, labels, notes):
            return None
    named = {key: service["metadata"][key] for key in ("name", "namespace")}
    meta = old["metadata"] if old is not None else named
    new: Obj = {"apiVersion": "v1", "kind": "Endpoints", "subsets": subsets}
    return new | {"metadata": {**meta, "labels": labels, "annotations": notes}}


def _subsets(service: Obj, pods: Iterable[Obj]) -> list[Obj]:
    """Pods with the same ports are in one subset."""
    behind: dict[bytes, tuple[list[Obj], list[Obj]]] = {}
    for pod in sorted(pods, key=lambda pod: (_addresses(pod)[:1], pod["metadata"]["name"])):
        addresses, ports = _addresses(pod), _ports(service, pod)
        if is_terminal(pod) or not addresses or (is_deleted(pod) and not _open(service)):
            continue
        if not ports and (listed(service["spec"], "ports") or not _is_headless(service)):
            continue
        address = {"ip": addresses[0], **_named(service, pod)}
        groups = behind.setdefault(orjson.dumps(ports), ([], []))
        groups[0 if _open(service) or is_ready(pod) else 1].append(address)
    subsets = list[Obj]()
    for key, (ready, waiting) in behind.items():
        ports = orjson.loads(key)
        subsets.append(
            {
                **({"addresses": ready} if ready else {}),
                **({"notReadyAddresses": waiting} if waiting else {}),
                **({"ports": [_plain(each) for each in ports]} if ports else {}),
            }
        )
    return subsets


def _plain(port: Obj) -> Obj:
    return {key: value for key, value in port.items() if value != ""}


def _cut(subsets: list[Obj]) -> tuple[list[Obj], bool]:
    """At most 1,000 addresses, rather ready ones; and whether there were more."""
    room, cut = MOST_IN_ENDPOINTS, False
    for key in ("addresses", "notReadyAddresses"):
        for each in subsets:
            addresses = each.get(key, [])
            cut = cut or len(addresses) > room
            each[key] = addresses[:room]
            room -= len(each[key])
            if not each[key]:
                del each[key]
    kept = [each for each in subsets if each.get("addresses") or each.get("notReadyAddresses")]
    return kept, cut


_WEIGHT = 10
"""A write about a pod of a Service is so many times as long as one that counts it."""


class EndpointController(SimulatedController[ObjectKey]):
    """Writes which pods stand behind the Services that have a selector."""

    name = "endpoint"

    def __init__(self, parts: ControllerTools) -> None:
        super().__init__(parts)
        self._services = parts.kinds.of(SERVICES)
        self._endpoints = parts.kinds.of(ENDPOINTS)
        self._slices = parts.kinds.of(ENDPOINT_SLICES)
        self._sizes: dict[ObjectKey, int] = {}
        """How many pods stand behind a Service."""
        self._services.add_handler(self._on_service)
        self._endpoints.add_handler(self._on_endpoints)
        self._slices.add_handler(self._on_slice)
        self._pods.add_handler(self._on_pod)

    def _on_service(self, delta: Delta[Obj]) -> None:
        if has_endpoints(delta.last):
            self.loop.add(delta.key)

    def _on_endpoints(self, delta: Delta[Obj]) -> None:
        if delta.old is not None and self._services.get(delta.key) is not None:
            self.loop.add(delta.key)

    def _on_slice(self, delta: Delta[Obj]) -> None:
        name = labels_of(delta.last).get(SERVICE_NAME)
        if delta.old is not None and name:
            self.loop.add(ObjectKey(delta.key.namespace, name))

    def _on_pod(self, delta: Delta[Obj]) -> None:
        services = self._services.in_namespace(delta.key.namespace)
        if not services:
            return
        states = [facts(pod) for pod in (delta.old, delta.new) if pod is not None]
        if len(states) > 1 and states[0] == states[1]:
            return
        for service in services:
            wanted = (service["spec"].get("selector") or {}).items()
            if has_endpoints(service) and any(wanted <= labels.items() for labels, *_ in states):
                key = key_of(service)
                self.loop.settle(key, _WEIGHT * self._sizes.get(key, 0))

    async def _reconcile(self, key: ObjectKey) -> float | None:
        service, old = self._services.get(key), self._endpoints.get(key)
        if service is None:
            self._sizes.pop(key, None)
            if old is not None:
                await self._endpoints.delete(old)
            return None
        if not has_endpoints(service) or is_deleted(service):
            return None
        wanted = (service["spec"].get("selector") or {}).items()
        inside = self._pods.in_namespace(key.namespace)
        pods = [pod for pod in inside if wanted <= labels_of(pod).items()]
        self._sizes[key] = len(pods)
        zones = {node.name: self._zone(node) for node in self._nodes.store}
        slices = self._slices.in_namespace(key.namespace)
        step = plan_slices(service, pods, zones, [each for each in slices if _is_of(each, key)])
        for each in step.create:
            await self._slices.create(each)
        for each in step.update:
            await self._slices.update(each)
        for each in step.delete:
            await self._slices.delete(each)
        new = endpoints_of(service, pods, old)
        if new is not None:
            await (self._endpoints.create if old is None else self._endpoints.update)(new)
        return None

    def _zone(self, node: ObjectKey) -> str:
        return labels_of(self._nodes.get(node) or {}).get(ZONE, "")


def _is_of(endpoint_slice: Obj, key: ObjectKey) -> bool:
    labels = labels_of(endpoint_slice)
    return labels.get(SERVICE_NAME) == key.name and labels.get(MANAGED_BY) == CONTROLLER
