"""The block `metrics.localQueueMetrics` of the configuration (KEP-1833)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from kueuelib.machinery.selectors import EVERYTHING, NOTHING, Selector, from_label_selector


@attrs.frozen
class LocalQueueMetrics:
    """Whether LocalQueues have metrics, and which of them: a raw label selector; None for all."""

    enable: bool = True
    local_queue_selector: Mapping[str, Any] | None = None

    @property
    def selector(self) -> Selector:
        """The LocalQueues with metrics.

        Raises:
            InvalidSelector: the selector breaks a rule.
        """
        if not self.enable:
            return NOTHING
        found = self.local_queue_selector
        return EVERYTHING if found is None else from_label_selector(found)
