"""Where the Services of the cluster are, for pods that share the loopback interface. Pure.

There is no virtual address: a Service is at the address of one of its ready pods, and a program
reaches it by the port of the pod.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import attrs

from kueuelib.api.meta import is_true, labels_of

_DOMAINS: Final = ("", ".svc", ".svc.cluster.local")


@attrs.frozen
class ServicePlace:
    """Where a Service is.

    Attributes:
        namespace: of the Service.
        name: of the Service.
        address: of one of its ready pods.
        ports: name, own port and the port of the pod; the name may be empty.
    """

    namespace: str
    name: str
    address: str
    ports: tuple[tuple[str, int, int], ...]

    @property
    def moved(self) -> tuple[tuple[str, int, int], ...]:
        """The ports that the pod has under another number."""
        return tuple(each for each in self.ports if each[1] != each[2])


def places(
    services: Iterable[Mapping[str, Any]], pods: Sequence[Mapping[str, Any]]
) -> list[ServicePlace]:
    """The Services that have a ready pod on the node.

    EndpointSlices do not help: the API refuses addresses of the loopback interface in them.

    Args:
        services: raw.
        pods: those of the node, raw.
    """
    known = []
    for service in services:
        meta, spec = service["metadata"], service["spec"]
        selector = (spec.get("selector") or {}).items()
        chosen = [
            each
            for each in pods
            if selector
            and each["metadata"]["namespace"] == meta["namespace"]
            and selector <= labels_of(each).items()
            and (spec.get("publishNotReadyAddresses") or is_true(each, "Ready"))
            and (each.get("status") or {}).get("podIP")
        ]
        if not chosen:
            continue
        pod = min(chosen, key=lambda each: str(each["metadata"]["creationTimestamp"]))
        ports = tuple(
            (each.get("name") or "", int(each["port"]), _target(each, pod))
            for each in spec.get("ports") or ()
        )
        known.append(ServicePlace(meta["namespace"], meta["name"], pod["status"]["podIP"], ports))
    return known


def _target(port: Mapping[str, Any], pod: Mapping[str, Any]) -> int:
    """The port of a pod for one of a Service."""
    target = port.get("targetPort") or port["port"]
    for container in pod["spec"]["containers"]:
        for each in container.get("ports") or ():
            if each.get("name") == target:
                return int(each["containerPort"])
    return target if isinstance(target, int) else int(port["port"])


def names_of(known: Iterable[ServicePlace], namespace: str) -> dict[str, str]:
    """The address of each name by which pods of a namespace call Services."""
    names = {}
    for each in known:
        for domain in _DOMAINS:
            names[f"{each.name}.{each.namespace}{domain}"] = each.address
        if each.namespace == namespace:
            names[each.name] = each.address
    return names


def links_of(known: Iterable[ServicePlace], namespace: str) -> dict[str, str]:
    """The variables about the Services of a namespace, as Docker links have them."""
    variables: dict[str, str] = {}
    for each in known:
        if each.namespace != namespace or not each.ports:
            continue
        prefix = each.name.upper().replace("-", "_")
        first = each.ports[0][2]
        variables |= {
            f"{prefix}_SERVICE_HOST": each.address,
            f"{prefix}_SERVICE_PORT": str(first),
            f"{prefix}_PORT": f"tcp://{each.address}:{first}",
        }
        for name, port, target in each.ports:
            if name:
                named = name.upper().replace("-", "_")
                variables[f"{prefix}_SERVICE_PORT_{named}"] = str(target)
            variables |= {
                f"{prefix}_PORT_{port}_TCP": f"tcp://{each.address}:{target}",
                f"{prefix}_PORT_{port}_TCP_PROTO": "tcp",
                f"{prefix}_PORT_{port}_TCP_PORT": str(target),
                f"{prefix}_PORT_{port}_TCP_ADDR": each.address,
            }
    return variables


def with_addresses(text: str, names: Mapping[str, str]) -> str:
    """A text with the addresses of Services in place of their names, where no hosts file helps.

    A name without its namespace is replaced only as the host of a URL.
    """
    for name, address in sorted(names.items(), key=lambda item: -len(item[0])):
        before = r"(?<![\w.-])" if "." in name else r"(?<=//)"
        text = re.sub(rf"{before}{re.escape(name)}(?![\w.-])", address, text)
    return text
