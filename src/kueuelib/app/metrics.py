"""The blocks below `metrics` of the configuration (KEP-1833, KEP-7066)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

import attrs

from kueuelib.api.names import is_qualified_name
from kueuelib.controllers.series_labels import CLUSTER_QUEUE, KINDS, CustomLabel
from kueuelib.errors import ConfigError
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


MAX_LABELS: Final = 20
MAX_LABELS_OF_KIND: Final = 6
MAX_TRACKED: Final = 16
_NAME = re.compile(r"[a-zA-Z][a-zA-Z0-9_]*", re.ASCII)


@attrs.frozen
class CustomMetricLabel:
    """A label or an annotation of a queue object that its metrics get as `custom_<name>`."""

    name: str = ""
    source_label_key: str = ""
    source_annotation_key: str = ""
    source_kind: str = CLUSTER_QUEUE
    tracked_values: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """The key of the label or annotation."""
        return self.source_annotation_key or self.source_label_key or self.name

    @property
    def label(self) -> CustomLabel:
        """The same for the metrics."""
        return CustomLabel(
            name=f"custom_{self.name}",
            kind=self.source_kind,
            key=self.key,
            annotation=bool(self.source_annotation_key),
            tracked=self.tracked_values,
        )


def check_custom_labels(labels: tuple[CustomMetricLabel, ...], source: str) -> None:
    """Refuses what Kueue refuses, and labels of Workloads, which have no series of their own.

    Raises:
        ConfigError: the key is named.
    """
    where = "metrics.customLabels"
    if len(labels) > MAX_LABELS:
        raise ConfigError(source, f"{where} has {len(labels)}", f"name at most {MAX_LABELS}")
    uses = Counter(one.name for one in labels)
    kinds = Counter(one.source_kind for one in labels)
    for index, one in enumerate(labels):
        here = f"{where}[{index}]"
        if not _NAME.fullmatch(one.name):
            raise ConfigError(
                source, f"{here}.name: {one.name!r}", "use a-z, A-Z, 0-9 and '_', a letter first"
            )
        if uses[one.name] > 1:
            raise ConfigError(source, f"{here}.name: {one.name} is used twice", "rename one")
        if one.source_label_key and one.source_annotation_key:
            raise ConfigError(
                source, f"{here} has sourceLabelKey and sourceAnnotationKey", "remove one of them"
            )
        if not is_qualified_name(one.key):
            raise ConfigError(source, f"{here}: {one.key!r} is not a label key", "correct it")
        if one.source_kind not in KINDS:
            problem = f"{here}.sourceKind is {one.source_kind!r}"
            raise ConfigError(source, problem, f"write one of {', '.join(KINDS)}")
        if kinds[one.source_kind] > MAX_LABELS_OF_KIND:
            problem = f"{where} has {kinds[one.source_kind]} of a {one.source_kind}"
            raise ConfigError(source, problem, f"name at most {MAX_LABELS_OF_KIND} per kind")
        if len(one.tracked_values) > MAX_TRACKED:
            problem = f"{here}.trackedValues has {len(one.tracked_values)}"
            raise ConfigError(source, problem, f"name at most {MAX_TRACKED}")
        if len(set(one.tracked_values)) < len(one.tracked_values):
            raise ConfigError(source, f"{here}.trackedValues repeats a value", "name each once")
