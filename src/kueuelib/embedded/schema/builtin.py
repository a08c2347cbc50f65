"""How the built-in kinds merge: list types and keys for server-side apply and strategic merge.

The nodes are made of the fields in `wire.txt`. Lists are atomic and maps granular, unless a table
here says otherwise. The two ways of patching do not agree everywhere: a port of a container is
found by its number alone in a strategic merge patch, by number and protocol in server-side apply;
conditions of a Job are merged by type in the former, and replaced as a whole in the latter.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Final

import attrs

from kueuelib.embedded.schema.messages import Field, exists, json_fields, message_name
from kueuelib.embedded.schema.node import ANYTHING, ListType, PatchStrategy, SchemaNode

_MERGED: Final[Mapping[str, str]] = {
    "name": """
        core.Container.env core.EphemeralContainerCommon.env core.PodSpec.containers
        core.PodSpec.ephemeralContainers core.PodSpec.imagePullSecrets core.PodSpec.initContainers
        core.PodSpec.resourceClaims core.PodSpec.schedulingGates core.PodSpec.volumes
        core.ContainerStatus.allocatedResourcesStatus core.PodStatus.resourceClaimStatuses
        core.ServiceAccount.secrets admissionregistration.MutatingWebhook.matchConditions
        admissionregistration.MutatingWebhookConfiguration.webhooks
        admissionregistration.ValidatingWebhook.matchConditions
        admissionregistration.ValidatingWebhookConfiguration.webhooks
    """,
    "type": """
        core.NamespaceStatus.conditions core.NodeStatus.addresses core.NodeStatus.conditions
        core.PersistentVolumeClaimStatus.conditions core.PodStatus.conditions
        core.ReplicationControllerStatus.conditions core.ServiceStatus.conditions
        apps.DaemonSetStatus.conditions apps.DeploymentStatus.conditions
        apps.ReplicaSetStatus.conditions apps.StatefulSetStatus.conditions
    """,
    "mountPath": """
        core.Container.volumeMounts core.ContainerStatus.volumeMounts
        core.EphemeralContainerCommon.volumeMounts
    """,
    "devicePath": "core.Container.volumeDevices core.EphemeralContainerCommon.volumeDevices",
    "ip": "core.PodSpec.hostAliases core.PodStatus.podIPs",
    "uid": "meta.ObjectMeta.ownerReferences",
}
"""Lists that merge by the same key in both ways."""
_KEYED: Final[Mapping[str, tuple[str, ...]]] = {
    "core.Container.ports": ("containerPort", "protocol"),
    "core.EphemeralContainerCommon.ports": ("containerPort", "protocol"),
    "core.PodSpec.topologySpreadConstraints": ("topologyKey", "whenUnsatisfiable"),
    "core.ServiceSpec.ports": ("port", "protocol"),
    **{field: (key,) for key, fields in _MERGED.items() for field in fields.split()},
}
"""Lists that merge by keys; a strategic merge patch knows the first one only."""
_APPLIED: Final[Mapping[str, tuple[str, ...]]] = {
    "core.ResourceRequirements.claims": ("name",),
    "core.ResourceStatus.resources": ("resourceID",),
    "apiextensions.CustomResourceDefinitionStatus.conditions": ("type",),
    "apiregistration.APIServiceStatus.conditions": ("type",),
}
"""Lists that merge by keys in server-side apply, and are replaced by other patches."""
_PATCHED: Final[Mapping[str, str]] = {
    "core.PodStatus.hostIPs": "ip",
    "batch.JobStatus.conditions": "type",
}
"""Lists that merge by a key in strategic merge patches, and are atomic in server-side apply."""
_SETS: Final = """
    core.NodeSpec.podCIDRs meta.ObjectMeta.finalizers core.ContainerRestartRuleOnExitCodes.values
    batch.PodFailurePolicyOnExitCodesRequirement.values batch.UncountedTerminatedPods.succeeded
    batch.UncountedTerminatedPods.failed discovery.Endpoint.addresses
"""
_MERGED_SETS: Final = frozenset(("core.NodeSpec.podCIDRs", "meta.ObjectMeta.finalizers"))
_ATOMIC: Final = """
    core.PodSpec.nodeSelector core.ReplicationControllerSpec.selector core.ServiceSpec.selector
    node.Scheduling.nodeSelector core.FileKeySelector core.ObjectFieldSelector
    core.ResourceFieldSelector core.ConfigMapKeySelector core.SecretKeySelector core.NodeSelector
    core.NodeSelectorTerm core.EndpointAddress core.EndpointPort core.ObjectReference
    core.LocalObjectReference core.TypedLocalObjectReference core.ScopeSelector
    core.SecretReference networking.ServiceBackendPort discovery.EndpointPort rbac.Subject
    rbac.RoleRef meta.OwnerReference meta.LabelSelector
"""
"""Messages and maps that server-side apply replaces as a whole."""
_GRANULAR: Final = frozenset(("core.PersistentVolumeSpec.claimRef",))
_PROTOCOL: Final = SchemaNode(type="string", default="TCP")
_WITH_PROTOCOL: Final = ("core.ContainerPort", "core.ServicePort")
_ZEROS: Final = {"string": "", "boolean": False}
_OPEN: Final = ("r", "S", "F", "o", "apiextensions.JSONSchemaProps")
_TYPES: Final = {"i": "integer", "b": "boolean", "n": "number"}


@cache
def message_node(message: str) -> SchemaNode:
    """How values of a type merge; of an unknown type nothing is known."""
    fields = json_fields(message) if exists(message) else ()
    return SchemaNode(
        type="object",
        properties={field.name: _field(message, field) for field in fields},
        preserve_unknown=True,
        atomic_map=message in _ATOMIC.split(),
    )


def _field(message: str, field: Field) -> SchemaNode:
    inner, name = _inner(message, field), f"{message}.{field.name}"
    if field.form == "%":
        return SchemaNode(type="object", additional=inner, atomic_map=name in _ATOMIC.split())
    if field.form == "+" or field.type.startswith("&"):
        return _list(name, inner)
    return attrs.evolve(inner, atomic_map=False) if name in _GRANULAR else inner


def _inner(message: str, field: Field) -> SchemaNode:
    if field.type in _OPEN:
        return ANYTHING
    if field.message:
        return message_node(field.message)
    if field.name == "protocol" and message in _WITH_PROTOCOL:
        return _PROTOCOL
    type_ = _TYPES.get(field.type, "string")
    if field.always and not field.form:  # OpenAPI gives these a default, which matters for keys
        return SchemaNode(type=type_, default=_ZEROS.get(type_, 0))
    return SchemaNode(type=type_)


def _list(name: str, item: SchemaNode) -> SchemaNode:
    applied = _KEYED.get(name) or _APPLIED.get(name, ())
    patched = _KEYED.get(name, (_PATCHED.get(name, ""),))[0]
    how = ListType.MAP if applied else ListType.SET if name in _SETS.split() else ListType.ATOMIC
    merges = patched or name in _MERGED_SETS
    return SchemaNode(
        type="array",
        items=item,
        list_type=how,
        list_map_keys=applied,
        patch_strategy=PatchStrategy.MERGE if merges else PatchStrategy.REPLACE,
        patch_merge_key=patched,
    )


def builtin_node(group: str, kind: str) -> SchemaNode:
    """How objects of a built-in kind merge; of an unknown kind only the metadata are known."""
    return _whole(message_name(group, kind))


@cache
def _whole(message: str) -> SchemaNode:
    return custom_node(message_node(message))


_METADATA: Final = message_node("meta.ObjectMeta")
_TEXT: Final = SchemaNode(type="string")


def custom_node(node: SchemaNode) -> SchemaNode:
    """The node of a custom resource with the metadata that every object has."""
    head = {"apiVersion": _TEXT, "kind": _TEXT, "metadata": _METADATA}
    return SchemaNode(
        type=node.type,
        properties={**node.properties, **head},
        additional=node.additional,
        preserve_unknown=node.preserve_unknown,
    )
