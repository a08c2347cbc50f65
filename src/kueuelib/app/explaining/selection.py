"""Which of the waiting Workloads were asked for: the options of `kueuelib pending`."""

from __future__ import annotations

from typing import Protocol

import attrs

from kueuelib.api.kueue import Workload


class _Row(Protocol):
    """A Workload, and where it waits."""

    @property
    def workload(self) -> Workload: ...

    @property
    def cluster_queue(self) -> str: ...


@attrs.frozen
class Selection:
    """The Workloads that were asked for.

    Attributes:
        namespace: their namespace; empty for all.
        local_queue: the LocalQueue that they name; empty for any.
        cluster_queue: the ClusterQueue in which they wait; empty for any.
    """

    namespace: str = ""
    local_queue: str = ""
    cluster_queue: str = ""

    def includes(self, row: _Row) -> bool:
        """Whether a Workload was asked for."""
        workload = row.workload
        return (
            self.namespace in ("", workload.namespace)
            and self.local_queue in ("", workload.spec.queue_name)
            and self.cluster_queue in ("", row.cluster_queue)
        )
