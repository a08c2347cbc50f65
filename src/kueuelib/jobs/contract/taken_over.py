"""The labels and annotations that a new Workload takes over from its job."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import attrs

from kueuelib.api.meta import Obj, annotations_of, labels_of
from kueuelib.api.missing_features import of_jobs
from kueuelib.api.names import PARAMETER_PREFIX


@attrs.frozen
class Difference:
    """A disagreement between pods of one group about a label or annotation to be taken over.

    Attributes:
        pod: the raw pod that differs from one before it.
        what: `label` or `annotation`, and its key.
    """

    pod: Obj
    what: str


@attrs.frozen
class TakenOver:
    """The keys of labels and annotations that a Workload takes over.

    Parameters of ProvisioningRequests and requests for missing features are always taken over.
    Given a Workload instead of a job, the methods return what it has taken over.
    """

    labels: tuple[str, ...] = ()
    annotations: tuple[str, ...] = ()

    def labels_of(self, objects: Sequence[Obj]) -> dict[str, str]:
        """The labels for the Workload of a job, or of several pods."""
        return _merged(_chosen(labels_of(obj), self.labels) for obj in objects)

    def annotations_of(self, objects: Sequence[Obj]) -> dict[str, str]:
        """The annotations for the Workload of a job, or of several pods."""
        return _merged(
            {
                key: value
                for key, value in annotations_of(obj).items()
                if key in self.annotations or key.startswith(PARAMETER_PREFIX)
            }
            | of_jobs(obj)
            for obj in objects
        )

    def difference(self, pods: Sequence[Obj]) -> Difference | None:
        """The first disagreement between pods of a group, or None; pods without a value do not
        count.
        """
        labels, annotations = self.labels_of(pods), self.annotations_of(pods)
        for pod in pods:
            for key, value in _chosen(labels_of(pod), self.labels).items():
                if labels[key] != value:
                    return Difference(pod, f"label {key}")
            for key, value in _chosen(annotations_of(pod), self.annotations).items():
                if annotations[key] != value:
                    return Difference(pod, f"annotation {key}")
        return None


NOTHING_ELSE: Final = TakenOver()


def _chosen(values: Mapping[str, str], keys: Sequence[str]) -> dict[str, str]:
    return {key: values[key] for key in keys if key in values}


def _merged(mappings: Iterator[dict[str, str]]) -> dict[str, str]:
    """All keys, each with its first value."""
    merged: dict[str, str] = {}
    for each in mappings:
        merged = {**each, **merged}
    return merged
