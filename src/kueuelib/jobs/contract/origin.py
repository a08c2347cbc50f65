"""What a start writes on pods about their origin: Workload, pod set and queues.

Dashboards and network policies select pods by these labels. They always describe the last start,
whatever a template or an admission check says, and they are never compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import attrs

from kueuelib.api.names import (
    CLUSTER_QUEUE_LABEL,
    LOCAL_QUEUE_LABEL,
    POD_SET_LABEL,
    WORKLOAD_ANNOTATION,
    is_dns1123_label,
    is_label_value,
)
from kueuelib.jobs.contract.podset_info import PodSetInfo, combine, infos_for_start


@attrs.frozen
class Origin:
    """What pods say about their origin besides the name of their pod set.

    Attributes:
        queues: labels with their ClusterQueue and their LocalQueue, if these are labels' values.
        workload: an annotation with their Workload.
    """

    queues: bool = True
    workload: bool = True

    def infos_for_start(
        self, workload: Mapping[str, Any], flavors: Mapping[str, Mapping[str, Any]]
    ) -> tuple[PodSetInfo, ...]:
        """What flavors and checks add to each pod set of an admitted Workload, and their origin.

        Args:
            workload: the raw Workload.
            flavors: the raw ResourceFlavors by name.

        Raises:
            FlavorNotFound: a flavor is missing.
            InvalidPodSetInfo: the admission does not name the pod sets of the Workload.
            InvalidPodSetUpdate: flavors and checks contradict each other.
        """
        labels, annotations = self._labels(workload), self._annotations(workload)
        return tuple(
            combine(
                info,
                PodSetInfo(
                    info.name,
                    labels={POD_SET_LABEL: info.name, **labels},
                    annotations=annotations,
                ),
            )
            for info in infos_for_start(workload, flavors)
        )

    def _labels(self, workload: Mapping[str, Any]) -> dict[str, str]:
        local = workload["spec"].get("queueName") or ""
        queue = ((workload.get("status") or {}).get("admission") or {}).get("clusterQueue") or ""
        if not self.queues:
            return {}
        labels = {LOCAL_QUEUE_LABEL: local} if local and is_label_value(local) else {}
        return labels | ({CLUSTER_QUEUE_LABEL: queue} if is_dns1123_label(queue) else {})

    def _annotations(self, workload: Mapping[str, Any]) -> dict[str, str]:
        return {WORKLOAD_ANNOTATION: workload["metadata"]["name"]} if self.workload else {}


WHOLE_ORIGIN: Final = Origin()
