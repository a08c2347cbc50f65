"""The kinds that the classes of kubernetes_asyncio stand for, by the names of the classes.

A class says its version and its kind, `V1CronJob`, but neither its API group nor its plural.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from kueuelib.api.meta import Resource

_NAME: Final = re.compile(r"(?P<prefix>\D*?)(?P<version>V\d+((alpha|beta)\d+)?)(?P<kind>[A-Z]\w*)")
_PREFIXES: Final = {("Events", "Event"): "events.k8s.io"}
"""The group of a class with a prefix, where other groups have a kind of the same name."""
_NAMESPACED: Final = {
    "": "Binding ConfigMap Endpoints Event LimitRange PersistentVolumeClaim Pod PodTemplate "
    "ReplicationController ResourceQuota Secret Service ServiceAccount",
    "apps": "ControllerRevision DaemonSet Deployment ReplicaSet StatefulSet",
    "authentication.k8s.io": "TokenRequest",
    "authorization.k8s.io": "LocalSubjectAccessReview",
    "autoscaling": "HorizontalPodAutoscaler Scale",
    "batch": "CronJob Job",
    "certificates.k8s.io": "PodCertificateRequest",
    "coordination.k8s.io": "Lease LeaseCandidate",
    "discovery.k8s.io": "EndpointSlice",
    "networking.k8s.io": "Ingress NetworkPolicy",
    "policy": "Eviction PodDisruptionBudget",
    "rbac.authorization.k8s.io": "Role RoleBinding",
    "resource.k8s.io": "ResourceClaim ResourceClaimTemplate",
    "scheduling.k8s.io": "PodGroup Workload",
    "storage.k8s.io": "CSIStorageCapacity",
}
_CLUSTER: Final = {
    "": "ComponentStatus Namespace Node PersistentVolume",
    "admissionregistration.k8s.io": "MutatingAdmissionPolicy MutatingAdmissionPolicyBinding "
    "MutatingWebhookConfiguration ValidatingAdmissionPolicy ValidatingAdmissionPolicyBinding "
    "ValidatingWebhookConfiguration",
    "apiextensions.k8s.io": "CustomResourceDefinition",
    "apiregistration.k8s.io": "APIService",
    "authentication.k8s.io": "SelfSubjectReview TokenReview",
    "authorization.k8s.io": "SelfSubjectAccessReview SelfSubjectRulesReview SubjectAccessReview",
    "certificates.k8s.io": "CertificateSigningRequest ClusterTrustBundle",
    "flowcontrol.apiserver.k8s.io": "FlowSchema PriorityLevelConfiguration",
    "internal.apiserver.k8s.io": "StorageVersion",
    "networking.k8s.io": "IPAddress IngressClass ServiceCIDR",
    "node.k8s.io": "RuntimeClass",
    "rbac.authorization.k8s.io": "ClusterRole ClusterRoleBinding",
    "resource.k8s.io": "DeviceClass DeviceTaintRule ResourcePoolStatusRequest ResourceSlice",
    "scheduling.k8s.io": "PriorityClass",
    "storage.k8s.io": "CSIDriver CSINode StorageClass VolumeAttachment VolumeAttributesClass",
    "storagemigration.k8s.io": "StorageVersionMigration",
}


def _groups() -> dict[str, tuple[str, bool]]:
    return {
        kind: (group, namespaced)
        for kinds, namespaced in ((_NAMESPACED, True), (_CLUSTER, False))
        for group, names in kinds.items()
        for kind in names.split()
    }


_GROUPS: Final = _groups()


@lru_cache(maxsize=256)
def resource_named(name: str) -> Resource | None:
    """The kind that a class of this name stands for; None for pieces of objects, and lists.

    Args:
        name: for example `V1CronJob`, or `EventsV1Event`.
    """
    parts = _NAME.fullmatch(name)
    if parts is None or parts["kind"] not in _GROUPS:
        return None
    kind = parts["kind"]
    group, namespaced = _GROUPS[kind]
    group = _PREFIXES.get((parts["prefix"], kind), group)
    return Resource(group, parts["version"].lower(), _plural(kind), kind, namespaced)


def _plural(kind: str) -> str:
    """The plural as Kubernetes forms it."""
    name = kind.lower()
    if name == "endpoints":
        return name
    if name.endswith("y"):
        return f"{name[:-1]}ies"
    return f"{name}{'es' if name.endswith('s') else 's'}"
