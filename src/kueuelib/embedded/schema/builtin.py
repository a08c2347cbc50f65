"""How the built-in kinds merge: list types and keys for server-side apply and strategic merge.

The two ways of patching do not agree everywhere: a port of a container is found by its number alone
in a strategic merge patch, by number and protocol in server-side apply; conditions of a Job are
merged by type in the former, and replaced as a whole in the latter.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kueuelib.embedded.schema.node import SchemaNode
from kueuelib.embedded.schema.pods import (
    CONDITIONS,
    METADATA,
    POD_SPEC,
    POD_STATUS,
    POD_TEMPLATE,
)
from kueuelib.embedded.schema.shorthand import (
    ATOMIC,
    INTEGER,
    OPEN,
    TEXT,
    TEXTS,
    UNIQUE,
    UNIQUE_REPLACED,
    default,
    listed,
    merged_by,
    struct,
)


def _kind(**fields: SchemaNode) -> SchemaNode:
    """A whole object."""
    return struct(apiVersion=TEXT, kind=TEXT, metadata=METADATA, **fields)


_JOB_SPEC: Final = struct(
    selector=ATOMIC, template=POD_TEMPLATE, podFailurePolicy=OPEN, successPolicy=OPEN
)
_JOB_STATUS: Final = struct(
    conditions=merged_by(struct(type_=TEXT), "type"),
    uncountedTerminatedPods=struct(succeeded=UNIQUE_REPLACED, failed=UNIQUE_REPLACED),
)
_WEBHOOKS: Final = listed(
    struct(
        name=TEXT,
        clientConfig=struct(service=OPEN),
        matchConditions=listed(struct(name=TEXT), "name"),
        namespaceSelector=ATOMIC,
        objectSelector=ATOMIC,
    ),
    "name",
)
_REFERENCE: Final = ATOMIC

BUILTIN: Final[Mapping[tuple[str, str], SchemaNode]] = {
    ("", "ConfigMap"): _kind(data=TEXTS, binaryData=TEXTS),
    ("", "Event"): _kind(involvedObject=_REFERENCE, related=_REFERENCE, source=OPEN, series=OPEN),
    ("", "LimitRange"): _kind(spec=OPEN),
    ("", "Namespace"): _kind(spec=OPEN, status=struct(conditions=CONDITIONS)),
    ("", "Node"): _kind(
        spec=struct(
            podCIDRs=UNIQUE,
            taints=SchemaNode(type="array"),
        ),
        status=struct(
            capacity=TEXTS,
            allocatable=TEXTS,
            conditions=CONDITIONS,
            addresses=listed(struct(type_=TEXT, address=TEXT), "type"),
            nodeInfo=OPEN,
        ),
    ),
    ("", "Pod"): _kind(spec=POD_SPEC, status=POD_STATUS),
    ("", "PodTemplate"): _kind(template=POD_TEMPLATE),
    ("", "ResourceQuota"): _kind(
        spec=struct(hard=TEXTS, scopeSelector=ATOMIC), status=struct(hard=TEXTS, used=TEXTS)
    ),
    ("", "Secret"): _kind(data=TEXTS, stringData=TEXTS),
    ("", "Service"): _kind(
        spec=struct(
            selector=ATOMIC,
            ports=listed(
                struct(port=INTEGER, protocol=default("TCP"), name=TEXT), "port", "protocol"
            ),
        ),
        status=struct(conditions=CONDITIONS, loadBalancer=OPEN),
    ),
    ("", "ServiceAccount"): _kind(secrets=listed(ATOMIC, "name")),
    ("apps", "Deployment"): _kind(
        spec=struct(selector=ATOMIC, template=POD_TEMPLATE, strategy=OPEN),
        status=struct(conditions=CONDITIONS),
    ),
    **{
        ("apps", kind): _kind(
            spec=struct(selector=ATOMIC, template=POD_TEMPLATE, updateStrategy=OPEN),
            status=struct(conditions=CONDITIONS),
        )
        for kind in ("DaemonSet", "ReplicaSet", "StatefulSet")
    },
    ("", "ReplicationController"): _kind(
        spec=struct(selector=ATOMIC, template=POD_TEMPLATE), status=struct(conditions=CONDITIONS)
    ),
    ("", "PersistentVolumeClaim"): _kind(
        spec=struct(resources=struct(limits=TEXTS, requests=TEXTS), selector=ATOMIC),
        status=struct(conditions=CONDITIONS, capacity=TEXTS),
    ),
    ("", "PersistentVolume"): _kind(spec=struct(capacity=TEXTS, claimRef=OPEN)),
    ("batch", "CronJob"): _kind(
        spec=struct(jobTemplate=struct(metadata=METADATA, spec=_JOB_SPEC)),
        status=struct(active=SchemaNode(type="array")),
    ),
    ("networking.k8s.io", "Ingress"): _kind(
        spec=struct(defaultBackend=struct(service=struct(port=ATOMIC)))
    ),
    ("batch", "Job"): _kind(spec=_JOB_SPEC, status=_JOB_STATUS),
    ("apiextensions.k8s.io", "CustomResourceDefinition"): _kind(
        spec=struct(names=OPEN, conversion=struct(webhook=struct(clientConfig=OPEN))),
        status=struct(
            conditions=listed(struct(type_=TEXT), "type", replaced=True), acceptedNames=OPEN
        ),
    ),
    ("apiregistration.k8s.io", "APIService"): _kind(
        spec=struct(service=OPEN),
        status=struct(conditions=listed(struct(type_=TEXT), "type")),
    ),
    ("admissionregistration.k8s.io", "MutatingWebhookConfiguration"): _kind(webhooks=_WEBHOOKS),
    ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration"): _kind(webhooks=_WEBHOOKS),
    ("coordination.k8s.io", "Lease"): _kind(spec=OPEN),
    ("node.k8s.io", "RuntimeClass"): _kind(
        overhead=struct(podFixed=TEXTS), scheduling=struct(nodeSelector=ATOMIC)
    ),
    ("scheduling.k8s.io", "PriorityClass"): _kind(),
    ("rbac.authorization.k8s.io", "ClusterRole"): _kind(aggregationRule=OPEN),
    ("rbac.authorization.k8s.io", "ClusterRoleBinding"): _kind(roleRef=ATOMIC),
    ("rbac.authorization.k8s.io", "Role"): _kind(),
    ("rbac.authorization.k8s.io", "RoleBinding"): _kind(roleRef=ATOMIC),
}

_OTHER: Final = _kind()


def builtin_node(group: str, kind: str) -> SchemaNode:
    """How objects of a built-in kind merge; of an unknown kind only the metadata are known."""
    return BUILTIN.get((group, kind), _OTHER)


def custom_node(node: SchemaNode) -> SchemaNode:
    """The node of a custom resource with the metadata that every object has."""
    return SchemaNode(
        type=node.type,
        properties={**node.properties, "apiVersion": TEXT, "kind": TEXT, "metadata": METADATA},
        additional=node.additional,
        preserve_unknown=node.preserve_unknown,
    )
