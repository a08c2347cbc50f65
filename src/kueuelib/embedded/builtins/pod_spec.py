"""The rules of a pod's spec, also inside templates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kueuelib.embedded.builtins import naming
from kueuelib.embedded.builtins.fields import (
    duplicate,
    forbidden,
    invalid,
    listed,
    non_negative,
    not_supported,
    required,
    section,
)
from kueuelib.embedded.builtins.metadata import validate_labels
from kueuelib.embedded.builtins.pod_placement import validate_affinity, validate_tolerations
from kueuelib.embedded.builtins.resources import validate_resources
from kueuelib.errors import FieldError

RESTART_POLICIES = ("Always", "OnFailure", "Never")
DNS_POLICIES = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
PULL_POLICIES = ("Always", "IfNotPresent", "Never")
PROTOCOLS = ("TCP", "UDP", "SCTP")
MAX_PORT = 65535


def validate_pod_spec(spec: Mapping[str, Any], path: str) -> list[FieldError]:
    """The broken rules of the spec of a pod or of a template, after defaulting."""
    errors: list[FieldError] = []
    volumes = _validate_volumes(listed(spec, "volumes"), f"{path}.volumes", errors)
    errors += _validate_containers(spec, path, volumes)
    restart = spec.get("restartPolicy")
    if not restart:
        errors.append(required(f"{path}.restartPolicy"))
    elif restart not in RESTART_POLICIES:
        errors.append(
            not_supported(f"{path}.restartPolicy", restart, RESTART_POLICIES, ordered=True)
        )
    dns = spec.get("dnsPolicy")
    if dns not in DNS_POLICIES:
        errors.append(not_supported(f"{path}.dnsPolicy", dns, DNS_POLICIES))
    errors += validate_labels(spec.get("nodeSelector"), f"{path}.nodeSelector")
    for key in ("serviceAccountName", "nodeName", "priorityClassName", "runtimeClassName"):
        name = spec.get(key)
        if name:
            errors += [invalid(f"{path}.{key}", name, text) for text in naming.subdomain(name)]
    for key in ("hostname", "subdomain"):
        name = spec.get(key)
        if name:
            errors += [invalid(f"{path}.{key}", name, text) for text in naming.label(name)]
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and not 1 <= deadline <= 2**31 - 1:
        text = f"must be between 1 and {2**31 - 1}, inclusive"
        errors.append(invalid(f"{path}.activeDeadlineSeconds", deadline, text))
    grace = spec.get("terminationGracePeriodSeconds")
    errors += non_negative(f"{path}.terminationGracePeriodSeconds", grace)
    errors += validate_tolerations(listed(spec, "tolerations"), f"{path}.tolerations")
    errors += validate_affinity(section(spec, "affinity"), f"{path}.affinity")
    errors += _validate_gates(listed(spec, "schedulingGates"), f"{path}.schedulingGates")
    if spec.get("nodeName") and listed(spec, "schedulingGates"):
        text = "cannot be set until all schedulingGates have been cleared"
        errors.append(forbidden(f"{path}.nodeName", text))
    if spec.get("overhead"):
        errors += validate_resources({"requests": spec["overhead"]}, f"{path}.overhead")
    return errors


def _validate_gates(gates: Sequence[Any], path: str) -> list[FieldError]:
    errors = []
    seen: set[str] = set()
    for i, gate in enumerate(gates):
        name = gate.get("name") or ""
        where = f"{path}[{i}]"
        errors += [invalid(where, name, text) for text in naming.qualified_name(name)]
        if name in seen:
            errors.append(duplicate(where, name))
        seen.add(name)
    return errors


def _validate_volumes(
    volumes: Sequence[Any], path: str, errors: list[FieldError]
) -> frozenset[str]:
    names: set[str] = set()
    for i, volume in enumerate(volumes):
        where = f"{path}[{i}].name"
        name = volume.get("name") or ""
        if not name:
            errors.append(required(where))
            continue
        errors += [invalid(where, name, text) for text in naming.label(name)]
        if name in names:
            errors.append(duplicate(where, name))
        names.add(name)
        sources = [key for key, value in volume.items() if key != "name" and value is not None]
        if len(sources) > 1:
            text = "may not specify more than 1 volume type"
            errors += [forbidden(f"{path}[{i}].{key}", text) for key in sources[1:]]
    return frozenset(names)


def _validate_containers(
    spec: Mapping[str, Any], path: str, volumes: frozenset[str]
) -> list[FieldError]:
    errors = []
    containers = listed(spec, "containers")
    if not containers:
        errors.append(required(f"{path}.containers"))
    seen: set[str] = set()
    for i, container in enumerate(containers):
        where = f"{path}.containers[{i}]"
        errors += _validate_container(container, where, seen, volumes)
        if container.get("restartPolicy"):
            text = "may not be set for non-init containers"
            errors.append(forbidden(f"{where}.restartPolicy", text))
    for i, container in enumerate(listed(spec, "initContainers")):
        where = f"{path}.initContainers[{i}]"
        errors += _validate_container(container, where, seen, volumes)
        restart = container.get("restartPolicy")
        if restart and restart != "Always":
            errors.append(not_supported(f"{where}.restartPolicy", restart, ["Always"]))
    return errors


def _validate_container(
    container: Mapping[str, Any], path: str, seen: set[str], volumes: frozenset[str]
) -> list[FieldError]:
    errors = []
    name = container.get("name") or ""
    if not name:
        errors.append(required(f"{path}.name"))
    else:
        errors += [invalid(f"{path}.name", name, text) for text in naming.label(name)]
        if name in seen:
            errors.append(duplicate(f"{path}.name", name))
        seen.add(name)
    image = container.get("image") or ""
    if not image:
        errors.append(required(f"{path}.image"))
    elif image != image.strip():
        errors.append(
            invalid(f"{path}.image", image, "must not have leading or trailing whitespace")
        )
    pull = container.get("imagePullPolicy")
    if pull not in PULL_POLICIES:
        errors.append(not_supported(f"{path}.imagePullPolicy", pull, PULL_POLICIES))
    errors += _validate_ports(listed(container, "ports"), f"{path}.ports")
    errors += _validate_env(listed(container, "env"), f"{path}.env")
    errors += _validate_mounts(listed(container, "volumeMounts"), f"{path}.volumeMounts", volumes)
    errors += validate_resources(section(container, "resources"), f"{path}.resources")
    return errors


def _validate_ports(ports: Sequence[Any], path: str) -> list[FieldError]:
    errors = []
    names: set[str] = set()
    for i, port in enumerate(ports):
        where = f"{path}[{i}]"
        number = port.get("containerPort")
        if not number:
            errors.append(required(f"{where}.containerPort"))
        for key in ("containerPort", "hostPort"):
            number = port.get(key)
            if number and not 1 <= number <= MAX_PORT:
                text = f"must be between 1 and {MAX_PORT}, inclusive"
                errors.append(invalid(f"{where}.{key}", number, text))
        if port.get("protocol") not in PROTOCOLS:
            errors.append(not_supported(f"{where}.protocol", port.get("protocol"), PROTOCOLS))
        name = port.get("name")
        if name:
            if name in names:
                errors.append(duplicate(f"{where}.name", name))
            names.add(name)
    return errors


def _validate_env(env: Sequence[Any], path: str) -> list[FieldError]:
    errors = []
    for i, found in enumerate(env):
        if not found.get("name"):
            errors.append(required(f"{path}[{i}].name"))
        if found.get("value") and found.get("valueFrom"):
            text = "may not be specified when `value` is not empty"
            errors.append(invalid(f"{path}[{i}].valueFrom", "", text))
    return errors


def _validate_mounts(mounts: Sequence[Any], path: str, volumes: frozenset[str]) -> list[FieldError]:
    errors = []
    paths: set[str] = set()
    for i, mount in enumerate(mounts):
        where = f"{path}[{i}]"
        name = mount.get("name") or ""
        if not name:
            errors.append(required(f"{where}.name"))
        elif name not in volumes:
            text = f'Not found: "{name}"'
            errors.append(FieldError(f"{where}.name", "FieldValueNotFound", text))
        target = mount.get("mountPath") or ""
        if not target:
            errors.append(required(f"{where}.mountPath"))
        elif target in paths:
            errors.append(invalid(f"{where}.mountPath", target, "must be unique"))
        paths.add(target)
    return errors
