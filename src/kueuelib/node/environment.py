"""The environment, command and files of a container, from a pod and what it refers to. Pure."""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import attrs

from kueuelib.api.kinds import CONFIG_MAPS, SECRETS
from kueuelib.api.meta import Obj, Resource, annotations_of, labels_of
from kueuelib.api.quantity import Quantity
from kueuelib.errors import InvalidQuantity

MOST_VARIABLES: Final = 2_000
MOST_BYTES: Final = 1_000_000
TOKEN_FOLDER: Final = "/var/run/secrets/kubernetes.io/serviceaccount"  # noqa: S105
TOKEN_SECONDS: Final = 3607
"""The lifetime of tokens, as the API server asks for in pods."""

ObjectRef = tuple[Resource, str]
"""A ConfigMap or Secret in the namespace of the pod."""


class ContainerConfigError(Exception):
    """A container cannot be made of its pod now; the reason is `CreateContainerConfigError`."""


@attrs.frozen
class Surroundings:
    """What the specification of a pod refers to.

    Attributes:
        pod: raw, with its addresses in the status.
        objects: the ConfigMaps and Secrets that exist.
        allocatable: of the node, for limits that are not set.
        services: variables about the API server and Services.
        hosts: addresses by name, of Services.
        tokens: a token of the pod's service account by its audience; empty for the API server.
        authority: the certificates of the API server, PEM.
    """

    pod: Obj
    objects: Mapping[ObjectRef, Obj] = attrs.field(factory=dict)
    allocatable: Mapping[str, str] = attrs.field(factory=dict)
    services: Mapping[str, str] = attrs.field(factory=dict)
    hosts: Mapping[str, str] = attrs.field(factory=dict)
    tokens: Mapping[tuple[str, int], str] = attrs.field(factory=dict)
    authority: str = ""


# ---- references ----------------------------------------------------------------------------------


def object_refs(pod: Mapping[str, Any]) -> set[ObjectRef]:
    """The ConfigMaps and Secrets that a pod needs or may use."""
    refs: set[ObjectRef] = set()

    def note(resource: Resource, source: Mapping[str, Any] | None, key: str = "name") -> None:
        if source is not None and source.get(key):
            refs.add((resource, source[key]))

    spec = pod["spec"]
    for container in (*(spec.get("initContainers") or ()), *spec["containers"]):
        for variable in container.get("env") or ():
            source = variable.get("valueFrom") or {}
            note(CONFIG_MAPS, source.get("configMapKeyRef"))
            note(SECRETS, source.get("secretKeyRef"))
        for source in container.get("envFrom") or ():
            note(CONFIG_MAPS, source.get("configMapRef"))
            note(SECRETS, source.get("secretRef"))
    for volume in spec.get("volumes") or ():
        note(CONFIG_MAPS, volume.get("configMap"))
        note(SECRETS, volume.get("secret"), "secretName")
        for source in (volume.get("projected") or {}).get("sources") or ():
            note(CONFIG_MAPS, source.get("configMap"))
            note(SECRETS, source.get("secret"))
    return refs


def token_requests(pod: Mapping[str, Any]) -> set[tuple[str, int]]:
    """Audience and seconds of each token that a pod needs."""
    wanted = set() if pod["spec"].get("automountServiceAccountToken") is False else {_DEFAULT}
    for volume in pod["spec"].get("volumes") or ():
        for source in (volume.get("projected") or {}).get("sources") or ():
            if token := source.get("serviceAccountToken"):
                wanted.add(_asked(token))
    return wanted


_DEFAULT: Final = ("", TOKEN_SECONDS)


def _asked(token: Mapping[str, Any]) -> tuple[str, int]:
    return token.get("audience") or "", token.get("expirationSeconds") or 3600


def content_of(around: Surroundings, ref: ObjectRef, *, optional: bool) -> Mapping[str, bytes]:
    """The keys of a ConfigMap or Secret.

    Raises:
        ContainerConfigError: it does not exist and is not optional.
    """
    obj = around.objects.get(ref)
    if obj is None:
        if optional:
            return {}
        raise ContainerConfigError(f'{ref[0].kind.lower()} "{ref[1]}" not found')
    if ref[0] == SECRETS:
        return {name: base64.b64decode(text) for name, text in (obj.get("data") or {}).items()}
    data = {name: text.encode() for name, text in (obj.get("data") or {}).items()}
    binary = obj.get("binaryData") or {}
    return data | {name: base64.b64decode(text) for name, text in binary.items()}


_SUBSCRIPT: Final = re.compile(r"metadata\.(labels|annotations)\['(.*)'\]")


def field_of(pod: Mapping[str, Any], path: str) -> str:
    """The value of a `fieldRef`.

    Raises:
        ContainerConfigError: there is no such field.
    """
    meta, spec, status = pod["metadata"], pod["spec"], pod.get("status") or {}
    if subscript := _SUBSCRIPT.fullmatch(path):
        values = labels_of(pod) if subscript[1] == "labels" else annotations_of(pod)
        return values.get(subscript[2], "")
    if path in ("metadata.labels", "metadata.annotations"):
        values = labels_of(pod) if path.endswith("labels") else annotations_of(pod)
        return "\n".join(f'{name}="{_escaped(text)}"' for name, text in sorted(values.items()))
    known = {
        "metadata.name": meta["name"],
        "metadata.namespace": meta["namespace"],
        "metadata.uid": meta["uid"],
        "spec.nodeName": spec.get("nodeName", ""),
        "spec.serviceAccountName": spec.get("serviceAccountName") or "default",
        "status.hostIP": status.get("hostIP", ""),
        "status.hostIPs": status.get("hostIP", ""),
        "status.podIP": status.get("podIP", ""),
        "status.podIPs": status.get("podIP", ""),
    }
    if path not in known:
        raise ContainerConfigError(
            f"fieldRef.fieldPath: {path!r}: the node does not know this field"
        )
    return str(known[path])


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def resource_of_container(
    around: Surroundings, container: Mapping[str, Any], ref: Mapping[str, Any]
) -> str:
    """The value of a `resourceFieldRef`: a whole number of its divisor, rounded up.

    Raises:
        ContainerConfigError: there is no such container or resource.
    """
    spec = around.pod["spec"]
    named = ref.get("containerName") or container["name"]
    every = (*(spec.get("initContainers") or ()), *spec["containers"])
    chosen = next((each for each in every if each["name"] == named), None)
    if chosen is None:
        raise ContainerConfigError(f"resourceFieldRef.containerName: {named!r} is not a container")
    kind, _, name = ref["resource"].partition(".")
    resources = chosen.get("resources") or {}
    given = (resources.get(kind) or {}).get(name)
    if given is None:
        given = around.allocatable.get(name, "0") if kind == "limits" else "0"
    try:
        divisor = Quantity.parse(str(ref.get("divisor") or "0")) or Quantity.parse("1")
        return str(math.ceil(Quantity.parse(str(given)).fraction() / divisor.fraction()))
    except InvalidQuantity as error:
        raise ContainerConfigError(f"resourceFieldRef: {error}") from error


# ---- variables, command and args -----------------------------------------------------------------

_REFERENCE: Final = re.compile(r"\$\$|\$\(([^()]*)\)")


def expand(text: str, variables: Mapping[str, str]) -> str:
    """Replaces `$(NAME)` by the variable, `$$` by `$`; unknown names stay as they are."""

    def value(match: re.Match[str]) -> str:
        if match[0] == "$$":
            return "$"
        return variables.get(match[1], match[0])

    return _REFERENCE.sub(value, text)


def variables_of(around: Surroundings, container: Mapping[str, Any]) -> dict[str, str]:
    """The variables that a pod sets in a container, in their order.

    Raises:
        ContainerConfigError: something that is not optional is missing, or they are too many.
    """
    variables = dict(around.services)
    for source in container.get("envFrom") or ():
        prefix = source.get("prefix") or ""
        for resource, name in ((CONFIG_MAPS, "configMapRef"), (SECRETS, "secretRef")):
            if (ref := source.get(name)) is not None:
                named = (resource, ref.get("name", ""))
                content = content_of(around, named, optional=bool(ref.get("optional")))
                names = around.objects.get(named, {}).get("data") or ()
                variables |= {prefix + key: _text(content[key]) for key in names}
    for variable in container.get("env") or ():
        if (source := variable.get("valueFrom")) is None:
            variables[variable["name"]] = expand(variable.get("value") or "", variables)
        elif (value := _value_from(around, container, source)) is not None:
            variables[variable["name"]] = value
    size = sum(len(name) + len(value) for name, value in variables.items())
    if len(variables) > MOST_VARIABLES or size > MOST_BYTES:
        raise ContainerConfigError(
            f"{len(variables)} environment variables with {size} characters are too many; the "
            f"node allows {MOST_VARIABLES} with {MOST_BYTES}: mount a volume instead"
        )
    for name, value in variables.items():
        if "\0" in name + value or "=" in name or not name:
            raise ContainerConfigError(f"env: {name!r} cannot be an environment variable")
    return variables


def _text(data: bytes) -> str:
    return data.decode(errors="surrogateescape")


def _value_from(
    around: Surroundings, container: Mapping[str, Any], source: Mapping[str, Any]
) -> str | None:
    if ref := source.get("fieldRef"):
        return field_of(around.pod, ref["fieldPath"])
    if ref := source.get("resourceFieldRef"):
        return resource_of_container(around, container, ref)
    for resource, name in ((CONFIG_MAPS, "configMapKeyRef"), (SECRETS, "secretKeyRef")):
        if ref := source.get(name):
            optional = bool(ref.get("optional"))
            named = (resource, ref.get("name", ""))
            content = content_of(around, named, optional=optional)
            if ref["key"] in content:
                return _text(content[ref["key"]])
            if not optional:
                raise ContainerConfigError(
                    f"couldn't find key {ref['key']} in {resource.kind} {named[1]}"
                )
    return None


def command_of(container: Mapping[str, Any], variables: Mapping[str, str]) -> list[str]:
    """What to run; args alone are a command, because folders have no entry point.

    Raises:
        ContainerConfigError: there is neither.
    """
    words = [*(container.get("command") or ()), *(container.get("args") or ())]
    if not words:
        raise ContainerConfigError(
            "command: the image is a folder and has no entry point; set command, or args that "
            "begin with a program"
        )
    return [expand(word, variables) for word in words]


# ---- files of volumes ----------------------------------------------------------------------------

Files = dict[str, tuple[bytes, int]]
"""Contents and modes by relative path."""


def files_of(around: Surroundings, volume: Mapping[str, Any]) -> Files | None:
    """The files of a volume; None for an emptyDir or a claim.

    Raises:
        ContainerConfigError: something that is not optional is missing.
    """
    if "emptyDir" in volume or "persistentVolumeClaim" in volume:
        return None
    if source := volume.get("projected"):
        mode = source.get("defaultMode", 0o644)
        return dict(
            entry
            for each in source.get("sources") or ()
            for entry in _projected(around, each, mode)
        )
    for name in ("configMap", "secret", "downwardAPI"):
        if source := volume.get(name):
            renamed = {"name": source["secretName"]} if name == "secret" else {}
            mode = source.get("defaultMode", 0o644)
            return dict(_projected(around, {name: {**source, **renamed}}, mode))
    raise ContainerConfigError(
        f"volume {volume['name']!r}: the node does not know this kind of volume"
    )


def _projected(
    around: Surroundings, source: Mapping[str, Any], mode: int
) -> Iterator[tuple[str, tuple[bytes, int]]]:
    for resource, name in ((CONFIG_MAPS, "configMap"), (SECRETS, "secret")):
        if (ref := source.get(name)) is not None:
            optional = bool(ref.get("optional"))
            content = content_of(around, (resource, ref.get("name", "")), optional=optional)
            for key, path, own in _items(ref.get("items"), content):
                if key in content:
                    yield _inside(path), (content[key], own or mode)
                elif not optional:
                    raise ContainerConfigError(f"references non-existent {name} key: {key}")
    for item in (source.get("downwardAPI") or {}).get("items") or ():
        if ref := item.get("fieldRef"):
            text = field_of(around.pod, ref["fieldPath"])
        else:
            ref = item["resourceFieldRef"]
            text = resource_of_container(around, {"name": ref.get("containerName")}, ref)
        yield _inside(item["path"]), (text.encode(), item.get("mode") or mode)
    if (token := source.get("serviceAccountToken")) is not None:
        yield _inside(token["path"]), (around.tokens[_asked(token)].encode(), 0o600)


def _items(
    items: Sequence[Mapping[str, Any]] | None, content: Iterable[str]
) -> Iterator[tuple[str, str, int | None]]:
    if items is None:
        yield from ((key, key, None) for key in content)
    for each in items or ():
        yield each["key"], each["path"], each.get("mode")


def _inside(path: str) -> str:
    """A relative path that stays below its folder, as the API server demands, too."""
    if path.startswith("/") or ".." in path.split("/") or "\0" in path or not path:
        raise ContainerConfigError(f"{path!r} is not a relative path without ..")
    return path


def token_files(around: Surroundings) -> Files | None:
    """What a pod finds in the folder of its service account; None: it wants none."""
    token = around.tokens.get(_DEFAULT)
    if token is None or around.pod["spec"].get("automountServiceAccountToken") is False:
        return None
    texts = {
        "token": token,
        "ca.crt": around.authority,
        "namespace": around.pod["metadata"]["namespace"],
    }
    return {name: (text.encode(), 0o600) for name, text in texts.items()}
