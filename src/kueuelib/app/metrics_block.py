"""The block `metrics` of the configuration, and its value for the series (KEP-1833, KEP-7066)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import attrs

from kueuelib.api.names import is_qualified_name
from kueuelib.app.decoding import SELECTOR, ConfigurationRefusal, key
from kueuelib.controllers.series_labels import (
    CLUSTER_QUEUE,
    COHORT,
    LOCAL_QUEUE,
    WORKLOAD,
    CustomLabel,
    MetricSettings,
)
from kueuelib.machinery.selectors import EVERYTHING, NOTHING, Selector, from_label_selector


@attrs.frozen
class LocalQueueMetricsConfiguration:
    """Whether LocalQueues have metrics, and which of them: a raw label selector; None for all."""

    enable: bool = key(True, live=True)
    local_queue_selector: Mapping[str, Any] | None = key(None, live=True, rule=SELECTOR)

    @property
    def selector(self) -> Selector:
        """The LocalQueues with metrics.

        Raises:
            InvalidSelector: the selector breaks a rule.
        """
        if not self.enable:
            return NOTHING
        selector = self.local_queue_selector
        return EVERYTHING if selector is None else from_label_selector(selector)


MAX_LABELS: Final = 20
MAX_LABELS_OF_KIND: Final = {COHORT: 6, CLUSTER_QUEUE: 6, LOCAL_QUEUE: 6, WORKLOAD: 2}
MAX_TRACKED: Final = {COHORT: 16, CLUSTER_QUEUE: 16, LOCAL_QUEUE: 16, WORKLOAD: 12}
_NAME = re.compile(r"[a-zA-Z][a-zA-Z0-9_]*", re.ASCII)


@attrs.frozen
class CustomMetricLabel:
    """A label or an annotation of an object that its metrics get as `custom_<name>`."""

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
    def key_field(self) -> str:
        """The field that names the key."""
        if self.source_annotation_key:
            return "sourceAnnotationKey"
        return "sourceLabelKey" if self.source_label_key else "name"

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


@attrs.frozen
class Metrics:
    """The metrics endpoint, over HTTPS; address `"0"` turns it off."""

    bind_address: str = ":8443"
    enable_cluster_queue_resources: bool = False
    custom_labels: tuple[CustomMetricLabel, ...] = ()
    local_queue_metrics: LocalQueueMetricsConfiguration = attrs.field(
        factory=LocalQueueMetricsConfiguration
    )

    @property
    def settings(self) -> MetricSettings:
        """Which series there are."""
        return MetricSettings(
            resources=self.enable_cluster_queue_resources,
            local_queues=self.local_queue_metrics.selector,
            custom_labels=tuple(each.label for each in self.custom_labels),
        )


def check_custom_labels(labels: tuple[CustomMetricLabel, ...]) -> Iterator[ConfigurationRefusal]:
    """Refuses the labels that Kueue refuses."""
    where = "metrics.customLabels"
    if len(labels) > MAX_LABELS:
        yield ConfigurationRefusal(f"{where} has {len(labels)}", f"name at most {MAX_LABELS}")
    names: set[str] = set()
    kinds = Counter(one.source_kind for one in labels)
    for index, one in enumerate(labels):
        here = f"{where}[{index}]"
        if not _NAME.fullmatch(one.name):
            yield ConfigurationRefusal(
                f"{here}.name: {one.name!r}", "use a-z, A-Z, 0-9 and '_', a letter first"
            )
        if one.name in names:
            yield ConfigurationRefusal(f"{here}.name: {one.name} is used twice", "rename one")
        names.add(one.name)
        if one.source_label_key and one.source_annotation_key:
            yield ConfigurationRefusal(
                f"{here} has sourceLabelKey and sourceAnnotationKey", "remove one of them"
            )
        if not is_qualified_name(one.key):
            problem = f"{here}.{one.key_field}: {one.key!r} is not a label key"
            yield ConfigurationRefusal(problem, "correct it")
        kind, most = one.source_kind, MAX_LABELS_OF_KIND.get(one.source_kind)
        if most is None:
            problem = f"{here}.sourceKind is {kind!r}"
            yield ConfigurationRefusal(problem, f"write one of {', '.join(MAX_LABELS_OF_KIND)}")
            continue
        if kinds[kind] > most:
            problem = f"{where} has {kinds[kind]} of a {kind}"
            yield ConfigurationRefusal(problem, f"name at most {most} of this kind")
        if kind == WORKLOAD and not one.tracked_values:
            problem = f"{here}.trackedValues is empty, but Workloads may have any value"
            yield ConfigurationRefusal(problem, "name the values that matter")
        if len(one.tracked_values) > MAX_TRACKED[kind]:
            problem = f"{here}.trackedValues has {len(one.tracked_values)}"
            yield ConfigurationRefusal(problem, f"name at most {MAX_TRACKED[kind]}")
        if len(set(one.tracked_values)) < len(one.tracked_values):
            yield ConfigurationRefusal(f"{here}.trackedValues repeats a value", "name each once")


def taken_over(
    labels: Sequence[CustomMetricLabel], label_keys: Sequence[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The keys of labels and of annotations that a Workload takes over from its job.

    Args:
        labels: those of metrics; Workloads need what they are read from.
        label_keys: labels that are wanted anyway.
    """
    of_workloads = [each for each in labels if each.source_kind == WORKLOAD]
    own = [each.key for each in of_workloads if not each.source_annotation_key]
    annotations = [each.key for each in of_workloads if each.source_annotation_key]
    return tuple(dict.fromkeys([*label_keys, *own])), tuple(dict.fromkeys(annotations))
