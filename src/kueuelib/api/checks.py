"""AdmissionChecks, priority classes and provisioning parameters.

The `wire` of a field holds what the schema of the CRD says about it.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from kueuelib.api.kinds import (
    ADMISSION_CHECKS,
    PROVISIONING_REQUEST_CONFIGS,
    WORKLOAD_PRIORITY_CLASSES,
)
from kueuelib.api.meta import Condition, KubeObject
from kueuelib.api.patterns import (
    AFTER_CHECK_PASSED_OR_ON_DEMAND,
    ANYTIME,
    CONDITIONS,
    DNS_LABEL,
    KIND,
    QUALIFIED,
    SUBDOMAIN,
)
from kueuelib.api.struct import NOTHING, Struct, frozen, wire

IDENTICAL_POD_TEMPLATES = "IdenticalPodTemplates"
IDENTICAL_SCHEDULING_REQUIREMENTS = "IdenticalWorkloadSchedulingRequirements"


@frozen
class ParametersReference(Struct):
    """The object that configures a check."""

    api_group: str = attrs.field(metadata=wire(required=True, **SUBDOMAIN))
    kind: str = attrs.field(metadata=wire(required=True, **KIND))
    name: str = attrs.field(metadata=wire(required=True, **DNS_LABEL))


@frozen
class AdmissionCheckSpec(Struct):
    """The controller of a check, and how the check works (KEP-993).

    Attributes:
        controller_name: the controller that sets the states; cannot change.
        retry_delay_minutes: how long a workload waits after Retry.
        parameters: the object that configures the check.
        preemption_policy: Anytime, or AfterCheckPassedOrOnDemand: others are preempted only when
            the check has passed or asks for it.
    """

    controller_name: str = attrs.field(
        default="", metadata=wire(required=True, always=True, minLength=1, maxLength=253)
    )
    retry_delay_minutes: int = attrs.field(
        default=15, metadata=wire(always=True, default=15, minimum=0, format="int64")
    )
    parameters: ParametersReference | None = None
    preemption_policy: str = attrs.field(
        default=ANYTIME,
        metadata=wire(
            always=True, enum=[ANYTIME, AFTER_CHECK_PASSED_OR_ON_DEMAND], default=ANYTIME
        ),
    )


@frozen
class AdmissionCheckStatus(Struct):
    """Whether the controller of a check works; it reports that itself with `Active`."""

    conditions: tuple[Condition, ...] = attrs.field(default=(), metadata=CONDITIONS)


@frozen
class AdmissionCheck(KubeObject):
    """Something besides quota that a workload must pass before it starts."""

    resource = ADMISSION_CHECKS

    spec: AdmissionCheckSpec = attrs.field(factory=AdmissionCheckSpec, metadata=wire(required=True))
    status: AdmissionCheckStatus = attrs.field(factory=AdmissionCheckStatus)


@frozen
class WorkloadPriorityClass(KubeObject):
    """A named priority of workloads, without effect on their pods.

    Attributes:
        value: higher goes first.
        description: when to use it.
    """

    resource = WORKLOAD_PRIORITY_CLASSES

    value: int = attrs.field(default=0, metadata=wire(required=True, always=True))
    description: str = attrs.field(default="", metadata=wire(maxLength=2048))


@frozen
class ProvisioningRetryStrategy(Struct):
    """What happens after a request for nodes has failed.

    Attributes:
        backoff_limit_count: how many further requests are made.
        backoff_base_seconds: the pause before the second request; doubles each time.
        backoff_max_seconds: the longest pause.
    """

    backoff_limit_count: int = attrs.field(
        default=3, metadata=wire(always=True, default=3, minimum=0)
    )
    backoff_base_seconds: int = attrs.field(
        default=60, metadata=wire(always=True, default=60, minimum=0)
    )
    backoff_max_seconds: int = attrs.field(
        default=1800, metadata=wire(always=True, default=1800, minimum=0)
    )


@frozen
class ProvisioningNodeSelector(Struct):
    """A node selector whose value is known once the nodes are there.

    Attributes:
        key: the node label.
        value_from_provisioning_class_detail: the key in `status.provisioningClassDetails` of the
            ProvisioningRequest that holds the value.
    """

    key: str = attrs.field(metadata=wire(required=True, **QUALIFIED))
    value_from_provisioning_class_detail: str = attrs.field(
        metadata=wire(required=True, minLength=1, maxLength=32768)
    )


@frozen
class ProvisioningPodSetUpdates(Struct):
    """What is added to pods so that they run on the nodes that were made for them.

    Attributes:
        node_selector: labels of these nodes.
    """

    node_selector: tuple[ProvisioningNodeSelector, ...] = attrs.field(
        default=(), metadata=wire(keys=("key",), maxItems=8)
    )


@frozen
class ProvisioningRequestConfigSpec(Struct):
    """How nodes are requested for a workload.

    Attributes:
        provisioning_class_name: how the autoscaler provisions.
        parameters: passed to the provisioning class.
        managed_resources: only pod sets that ask for one of them need nodes; empty: all do.
        retry_strategy: what happens after a request has failed.
        pod_set_updates: how pods find their nodes, in addition to the annotations that they always
            get.
        pod_set_merge_policy: which pod sets are asked for as one: those with equal templates, or
            those with equal requirements for a node; empty: none.
    """

    provisioning_class_name: str = attrs.field(metadata=wire(required=True, **SUBDOMAIN))
    parameters: Mapping[str, str] = attrs.field(
        default=NOTHING, metadata=wire(maxProperties=100, items={"maxLength": 255})
    )
    managed_resources: tuple[str, ...] = attrs.field(
        default=(), metadata=wire(kind="set", maxItems=100)
    )
    retry_strategy: ProvisioningRetryStrategy | None = attrs.field(
        default=None, metadata=wire(default={})
    )
    pod_set_updates: ProvisioningPodSetUpdates | None = None
    pod_set_merge_policy: str = attrs.field(
        default="",
        metadata=wire(enum=[IDENTICAL_POD_TEMPLATES, IDENTICAL_SCHEDULING_REQUIREMENTS]),
    )


@frozen
class ProvisioningRequestConfig(KubeObject):
    """The parameters of the provisioning check."""

    resource = PROVISIONING_REQUEST_CONFIGS

    spec: ProvisioningRequestConfigSpec = attrs.field(
        factory=lambda: ProvisioningRequestConfigSpec(""),
        metadata=wire(required=True, always=True),
    )
