"""Decides which pods are queued (KEP-976)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kueuelib.api.meta import labels_of
from kueuelib.api.names import NAMESPACE_NAME_LABEL
from kueuelib.errors import Unavailable
from kueuelib.jobs.contract.settings import JobSettings, PodSettings
from kueuelib.jobs.pods.reading import queue_of


def is_selected(
    pod: Mapping[str, Any],
    settings: JobSettings,
    namespace: str,
    namespace_labels: Mapping[str, str] | None,
) -> bool:
    """Whether a pod without a managed owner is to be queued.

    Args:
        pod: the raw pod.
        settings: the configuration.
        namespace: where it is.
        namespace_labels: the labels of its namespace; None when it is not known yet.

    Raises:
        Unavailable: the namespace is not known yet, and it matters.
    """
    if not queue_of(pod) and not settings.manage_jobs_without_queue_name:
        return False
    if is_excluded(pod, settings.pods, namespace, namespace_labels):
        return False
    return settings.manages(queue_of(pod), namespace_labels or {NAMESPACE_NAME_LABEL: namespace})


def is_excluded(
    pod: Mapping[str, Any],
    options: PodSettings,
    namespace: str,
    namespace_labels: Mapping[str, str] | None,
) -> bool:
    """Whether a selector of `podOptions` excludes a pod; see `is_selected`."""
    if not options.selected.matches(labels_of(pod)):
        return True
    if namespace_labels is None and not _asks_only_for_names(options.namespace_selector):
        text = f'the labels of the namespace "{namespace}" are not known yet; try again'
        raise Unavailable(text)
    labels = {NAMESPACE_NAME_LABEL: namespace} if namespace_labels is None else namespace_labels
    return not options.namespaces.matches(labels)


def _asks_only_for_names(selector: Mapping[str, Any]) -> bool:
    keys = {*(selector.get("matchLabels") or {})}
    keys |= {each["key"] for each in selector.get("matchExpressions") or ()}
    return keys <= {NAMESPACE_NAME_LABEL}
