"""All rules and plug-ins of the built-in kinds, as the server wants them."""

from __future__ import annotations

from collections.abc import Mapping

from kueuelib.api.kinds import (
    CONFIG_MAPS,
    JOBS,
    NAMESPACES,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    SECRETS,
    SERVICES,
)
from kueuelib.api.meta import Obj
from kueuelib.embedded.admission.plugin import AdmissionPlugin, KindRules
from kueuelib.embedded.builtins.config_rules import ConfigMapRules, SecretRules
from kueuelib.embedded.builtins.core_rules import NamespaceRules, NodeRules
from kueuelib.embedded.builtins.defaults import RBAC
from kueuelib.embedded.builtins.job_rules import JobRules
from kueuelib.embedded.builtins.limit_range import LimitRangePlugin
from kueuelib.embedded.builtins.pod_plugins import ServiceAccountPlugin, TolerationPlugin
from kueuelib.embedded.builtins.pod_rules import PodRules
from kueuelib.embedded.builtins.priority import (
    PriorityClassRules,
    PriorityPlugin,
    system_priority_classes,
)
from kueuelib.embedded.builtins.quota_rules import QuotaRules
from kueuelib.embedded.builtins.rbac_rules import BindingRules
from kueuelib.embedded.builtins.service_rules import ServiceRules
from kueuelib.embedded.builtins.stored_rules import stored_rules

SYSTEM_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")


def builtin_rules() -> Mapping[tuple[str, str], KindRules]:
    """The strategies by group and kind."""
    return {
        PODS.group_kind: PodRules(),
        JOBS.group_kind: JobRules(),
        NAMESPACES.group_kind: NamespaceRules(),
        NODES.group_kind: NodeRules(),
        PRIORITY_CLASSES.group_kind: PriorityClassRules(),
        CONFIG_MAPS.group_kind: ConfigMapRules(),
        SECRETS.group_kind: SecretRules(),
        SERVICES.group_kind: ServiceRules(),
        ("", "ResourceQuota"): QuotaRules(),
        **stored_rules(),
        (RBAC, "RoleBinding"): BindingRules(),
        (RBAC, "ClusterRoleBinding"): BindingRules(),
    }


def builtin_plugins() -> tuple[AdmissionPlugin, ...]:
    """The plug-ins in the order in which they are asked."""
    return (
        LimitRangePlugin(),
        ServiceAccountPlugin(),
        TolerationPlugin(),
        PriorityPlugin(),
    )


def system_objects() -> list[Obj]:
    """What exists in every cluster from the first moment: namespaces and PriorityClasses."""
    namespaces: list[Obj] = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        for name in SYSTEM_NAMESPACES
    ]
    return namespaces + system_priority_classes()
