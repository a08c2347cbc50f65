"""All rules and plug-ins of the built-in kinds."""

from __future__ import annotations

from collections.abc import Mapping

from kueuelib.api.kinds import JOBS, NAMESPACES, NODES, PODS, PRIORITY_CLASSES, SERVICES
from kueuelib.api.meta import Obj
from kueuelib.embedded.admission.plugin import AdmissionPlugin, KindRules
from kueuelib.embedded.builtins.core_rules import NamespaceRules, NodeRules
from kueuelib.embedded.builtins.job_rules import JobRules
from kueuelib.embedded.builtins.limit_range import LimitRangePlugin
from kueuelib.embedded.builtins.pod_plugins import ServiceAccountPlugin, TolerationPlugin
from kueuelib.embedded.builtins.pod_rules import PodRules
from kueuelib.embedded.builtins.priority import (
    PriorityClassRules,
    PriorityPlugin,
    system_priority_classes,
)
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
        SERVICES.group_kind: ServiceRules(),
        **stored_rules(),
    }


def builtin_plugins() -> tuple[AdmissionPlugin, ...]:
    """The plug-ins in the order in which they are asked."""
    return (LimitRangePlugin(), ServiceAccountPlugin(), TolerationPlugin(), PriorityPlugin())


def system_objects() -> list[Obj]:
    """The initial objects of every cluster: namespaces and PriorityClasses."""
    namespaces: list[Obj] = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        for name in SYSTEM_NAMESPACES
    ]
    return namespaces + system_priority_classes()
