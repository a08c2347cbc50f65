"""The webhooks of Deployments and StatefulSets, which write into their pod templates."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from kueuelib.api.meta import Obj, Resource, annotations_of, labels_of
from kueuelib.api.missing_features import (
    OF_JOBS,
    MissingFeature,
    asked_by_object,
)
from kueuelib.api.names import PRIORITY_CLASS_LABEL, QUEUE_LABEL
from kueuelib.api.pods import PodTemplateSpec
from kueuelib.api.schema import struct_schema
from kueuelib.errors import FieldError
from kueuelib.jobs.contract.integration import Validate
from kueuelib.jobs.contract.paths import value
from kueuelib.jobs.contract.settings import JobSettings
from kueuelib.jobs.contract.topology import ignored_requests
from kueuelib.jobs.reconcile.self_wired import IntegrationParts
from kueuelib.jobs.webhooks.manifests import JUDGED_METADATA, READY, webhook_path
from kueuelib.jobs.webhooks.rules import with_default_class
from kueuelib.jobs.webhooks.serving import (
    admit_knowing_owners,
    asked_by_pods,
    warnings_about,
)
from kueuelib.runtime.webhook.admission import (
    AdmissionRequest,
    WebhookEntry,
    failing_closed,
    mutating,
    new_or_changed,
    shape_with,
)
from kueuelib.runtime.webhook.server import WebhookServer

SHAPE = shape_with(
    {"spec.template": struct_schema(PodTemplateSpec), "spec.replicas": {"type": "integer"}},
    required="spec.template",
)
"""The fields that are read from such an object."""
COPIED = (QUEUE_LABEL, PRIORITY_CLASS_LABEL)
"""Labels that are copied from a parent to its pods."""
_TEMPLATES = (
    "spec.template",
    *(f"spec.leaderWorkerTemplate.{name}Template" for name in ("leader", "worker")),
)


class TemplateWebhook:
    """Writes into pod templates, and validates changes.

    Args:
        parts: the surroundings of the integration.
        write: from the raw object and the one that it replaces, if any, to the object with the
            marks for its pods; the same object if it is not queued.
        judge: returns every broken rule.
    """

    def __init__(
        self, parts: IntegrationParts, write: Callable[[Obj, Obj | None], Obj], judge: Validate
    ) -> None:
        resource = parts.integration.resource
        self.mutate_path = webhook_path(resource, mutating=True)
        self.validate_path = webhook_path(resource, mutating=False)
        self._parts = parts
        self._write = write
        self._judge = judge

    def register(self, server: WebhookServer) -> None:
        """Serve both paths."""
        shapes = self._parts.integration.shapes
        owners = self._parts.owners
        mutate = mutating(self.mutate, with_request=True, pure=True, warn=self.warn)
        admit_knowing_owners(server, self.mutate_path, owners, mutate, shapes)
        server.validate(self.validate_path, self.judge, shapes)

    def judge(self, new: Obj | None, old: Obj | None, _: AdmissionRequest) -> Sequence[FieldError]:
        """Every broken rule."""
        return () if new is None else self._judge(new, old)

    def mutate(self, obj: Obj, request: AdmissionRequest) -> Obj:
        """The object as it will be stored; the same object if an owner above it is queued."""
        if self._parts.owners.is_child(obj, request.namespace):
            return obj
        named, old = obj, request.old_object
        if old is None or not value(old, READY):  # pods that run would be replaced
            named = self._parts.owners.queued_by_default(obj, request.namespace)
        written = self._write(named, old)
        if written is named or not self._defaults_class(named, old):
            return written
        return self._write(with_default_class(named), old)

    def warn(self, made: Obj, request: AdmissionRequest) -> Iterator[str]:
        """Warnings if a new object or its pods ask for missing features, or have labels or
        annotations for a topology that have no effect.
        """
        if request.old_object is None and labels_of(made).get(QUEUE_LABEL):
            yield from warnings_about(self._asked(made))
            templates = ((path, value(made, path)) for path in _TEMPLATES)
            yield from ignored_requests(made["metadata"], templates)

    def _asked(self, made: Obj) -> Iterator[MissingFeature]:
        yield from asked_by_object(self._parts.integration.resource.kind, made)
        for path in _TEMPLATES:
            if (template := value(made, path)) is not None:
                name = path.rpartition(".")[2]
                yield from asked_by_pods(name, template, self._parts.settings)

    def _defaults_class(self, obj: Obj, old: Obj | None) -> bool:
        """Whether an object gets the default class: a new one, or one that had a class before.

        Others run without a class already, and their pods would be replaced.
        """
        new = old is None or bool(labels_of(old).get(PRIORITY_CLASS_LABEL))
        return new and self._parts.owners.default_class_for(obj)


def mark(template: Obj, labels: Mapping[str, str], annotations: Mapping[str, str]) -> None:
    """Writes labels and annotations into a raw pod template."""
    meta = template["metadata"] = template.get("metadata") or {}
    for field, added in (("labels", labels), ("annotations", annotations)):
        if added:
            meta[field] = {**(meta.get(field) or {}), **added}


def pass_on(template: Obj, obj: Obj, old: Obj | None, *keys: str) -> None:
    """Writes annotations of a parent, and its requests for missing features, into its template.

    Args:
        template: a raw pod template of the object.
        obj: the parent.
        old: the one that it replaces; what the parent has lost leaves the template.
        keys: of the annotations.
    """
    now, before = annotations_of(obj), {} if old is None else annotations_of(old)
    keys = (*keys, *OF_JOBS)
    mark(template, {}, {key: now[key] for key in keys if now.get(key)})
    notes = (template.get("metadata") or {}).get("annotations") or {}
    for key in keys:
        if before.get(key) and not now.get(key) and notes.get(key) == before[key]:
            del notes[key]


def template_entries(
    resource: Resource, settings: JobSettings, *judged: str
) -> tuple[WebhookEntry, ...]:
    """The entries of a kind: objects with a queue name where pods are queued.

    Args:
        resource: the kind.
        settings: the configuration.
        judged: the fields that the webhooks read besides labels, annotations and owners.
    """
    return tuple(_entry(resource, settings, judged, mutating=each) for each in (True, False))


def _entry(
    resource: Resource, settings: JobSettings, judged: tuple[str, ...], *, mutating: bool
) -> WebhookEntry:
    expression = {"key": QUEUE_LABEL, "operator": "Exists"}
    entry: Obj = {
        **failing_closed(f"{'m' if mutating else 'v'}{resource.kind.lower()}.kb.io"),
        "namespaceSelector": dict(settings.pods_namespace_selector),
        "objectSelector": {"matchExpressions": [expression]},
        "rules": [
            {
                "apiGroups": [resource.group],
                "apiVersions": [resource.version],
                "operations": ["CREATE", "UPDATE"],
                "resources": [resource.plural],
                "scope": "Namespaced",
            }
        ],
        "matchConditions": [new_or_changed(*JUDGED_METADATA, *judged)],
    }
    return WebhookEntry(mutating, webhook_path(resource, mutating=mutating), entry)
