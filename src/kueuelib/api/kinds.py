"""Kinds as `Resource` values: those that kueuelib uses, and what operators commonly own."""

from __future__ import annotations

from kueuelib.api.meta import Resource

KUEUE = "kueue.x-k8s.io"
MANAGER_NAMESPACE = "kueue-system"
"""The namespace of the manager and its own objects, unless a configuration names another one."""
V1BETA1 = "v1beta1"
V1BETA2 = "v1beta2"
VERSIONS = (V1BETA1, V1BETA2)
"""The versions of the queueing group, the oldest first."""

CLUSTER_QUEUES = Resource(KUEUE, V1BETA2, "clusterqueues", "ClusterQueue", namespaced=False)
COHORTS = Resource(KUEUE, V1BETA2, "cohorts", "Cohort", namespaced=False)
LOCAL_QUEUES = Resource(KUEUE, V1BETA2, "localqueues", "LocalQueue", namespaced=True)
RESOURCE_FLAVORS = Resource(KUEUE, V1BETA2, "resourceflavors", "ResourceFlavor", namespaced=False)
WORKLOADS = Resource(KUEUE, V1BETA2, "workloads", "Workload", namespaced=True)
ADMISSION_CHECKS = Resource(KUEUE, V1BETA2, "admissionchecks", "AdmissionCheck", namespaced=False)
WORKLOAD_PRIORITY_CLASSES = Resource(
    KUEUE, V1BETA2, "workloadpriorityclasses", "WorkloadPriorityClass", namespaced=False
)
PROVISIONING_REQUEST_CONFIGS = Resource(
    KUEUE, V1BETA2, "provisioningrequestconfigs", "ProvisioningRequestConfig", namespaced=False
)
TOPOLOGIES = Resource(KUEUE, V1BETA2, "topologies", "Topology", namespaced=False)
KUEUE_VISIBILITY = "visibility.kueue.x-k8s.io"
"""The group of Kueue's visibility API, in both versions."""
OWN_VISIBILITY = "visibility.kueuelib.dev"
"""The group of our extension of it, which has expected starts."""

NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
NODES = Resource("", "v1", "nodes", "Node", namespaced=False)
PODS = Resource("", "v1", "pods", "Pod", namespaced=True)
SECRETS = Resource("", "v1", "secrets", "Secret", namespaced=True)
SERVICES = Resource("", "v1", "services", "Service", namespaced=True)
SERVICE_ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount", namespaced=True)
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap", namespaced=True)
PERSISTENT_VOLUME_CLAIMS = Resource(
    "", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", namespaced=True
)
PERSISTENT_VOLUMES = Resource("", "v1", "persistentvolumes", "PersistentVolume", namespaced=False)
POD_TEMPLATES = Resource("", "v1", "podtemplates", "PodTemplate", namespaced=True)
LIMIT_RANGES = Resource("", "v1", "limitranges", "LimitRange", namespaced=True)
RESOURCE_QUOTAS = Resource("", "v1", "resourcequotas", "ResourceQuota", namespaced=True)
EVENTS = Resource("", "v1", "events", "Event", namespaced=True)
JOBS = Resource("batch", "v1", "jobs", "Job", namespaced=True)
CRON_JOBS = Resource("batch", "v1", "cronjobs", "CronJob", namespaced=True)
DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment", namespaced=True)
STATEFUL_SETS = Resource("apps", "v1", "statefulsets", "StatefulSet", namespaced=True)
DAEMON_SETS = Resource("apps", "v1", "daemonsets", "DaemonSet", namespaced=True)
REPLICA_SETS = Resource("apps", "v1", "replicasets", "ReplicaSet", namespaced=True)
INGRESSES = Resource("networking.k8s.io", "v1", "ingresses", "Ingress", namespaced=True)
INGRESS_CLASSES = Resource(
    "networking.k8s.io", "v1", "ingressclasses", "IngressClass", namespaced=False
)
NETWORK_POLICIES = Resource(
    "networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy", namespaced=True
)
ENDPOINTS = Resource("", "v1", "endpoints", "Endpoints", namespaced=True)
ENDPOINT_SLICES = Resource(
    "discovery.k8s.io", "v1", "endpointslices", "EndpointSlice", namespaced=True
)
POD_DISRUPTION_BUDGETS = Resource(
    "policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", namespaced=True
)
HORIZONTAL_POD_AUTOSCALERS = Resource(
    "autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler", namespaced=True
)
SERVICE_MONITORS = Resource(
    "monitoring.coreos.com", "v1", "servicemonitors", "ServiceMonitor", namespaced=True
)
STORAGE_CLASSES = Resource(
    "storage.k8s.io", "v1", "storageclasses", "StorageClass", namespaced=False
)
LEADER_WORKER_SETS = Resource(
    "leaderworkerset.x-k8s.io", "v1", "leaderworkersets", "LeaderWorkerSet", namespaced=True
)
PRIORITY_CLASSES = Resource(
    "scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", namespaced=False
)
RUNTIME_CLASSES = Resource("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", namespaced=False)
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease", namespaced=True)
ROLES = Resource("rbac.authorization.k8s.io", "v1", "roles", "Role", namespaced=True)
ROLE_BINDINGS = Resource(
    "rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding", namespaced=True
)
CLUSTER_ROLES = Resource(
    "rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", namespaced=False
)
CLUSTER_ROLE_BINDINGS = Resource(
    "rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False
)
CRDS = Resource(
    "apiextensions.k8s.io",
    "v1",
    "customresourcedefinitions",
    "CustomResourceDefinition",
    namespaced=False,
)
MUTATING_WEBHOOKS = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "mutatingwebhookconfigurations",
    "MutatingWebhookConfiguration",
    namespaced=False,
)
API_SERVICES = Resource(
    "apiregistration.k8s.io", "v1", "apiservices", "APIService", namespaced=False
)
VALIDATING_WEBHOOKS = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "validatingwebhookconfigurations",
    "ValidatingWebhookConfiguration",
    namespaced=False,
)


def spoken(resource: Resource, version: str) -> Resource:
    """A kind in the version that is requested; queueing kinds get the given version."""
    return resource.at(version) if resource.group == KUEUE else resource
