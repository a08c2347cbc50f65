"""Serves the webhooks of one kind of jobs while the process runs.

They are served even while the kind does not exist, so that no job bypasses them once it does.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterable, Iterator

from kueuelib.api.meta import Obj
from kueuelib.api.missing_features import (
    MissingFeature,
    asked_by_object,
    asked_by_template,
    asked_by_topology,
    sentence,
)
from kueuelib.errors import InvalidJob
from kueuelib.jobs.contract.capabilities import is_skipped
from kueuelib.jobs.contract.generic_job import GenericJob
from kueuelib.jobs.contract.integration import Integration
from kueuelib.jobs.contract.settings import JobSettings
from kueuelib.jobs.contract.topology import (
    asking_annotations,
    ignored_requests,
    topology_request,
)
from kueuelib.jobs.kinds.follower import HELD_BACK, KindFollower, KindMetrics
from kueuelib.jobs.lookups.owners import Owners
from kueuelib.jobs.lookups.stores import JobStores
from kueuelib.jobs.webhooks.manifests import webhook_path
from kueuelib.jobs.webhooks.rules import default_job, validate_job
from kueuelib.runtime.webhook.admission import (
    AdmissionHandler,
    AdmissionRequest,
    Shapes,
    ValidationResult,
    mutating,
)
from kueuelib.runtime.webhook.server import WebhookServer


class JobWebhook:
    """The webhooks of one kind.

    Args:
        integration: the kind.
        settings: the configuration.
        stores: the caches.
        owners: finds the ancestor that is queued on behalf of an object.
        metrics: counts.
        follower: knows whether the kind can be managed; None: it always can be.
    """

    def __init__(
        self,
        integration: Integration,
        settings: JobSettings,
        stores: JobStores,
        owners: Owners,
        metrics: KindMetrics,
        follower: KindFollower | None = None,
    ) -> None:
        self.mutate_path = webhook_path(integration.resource, mutating=True)
        self.validate_path = webhook_path(integration.resource, mutating=False)
        self._integration = integration
        self._settings = settings
        self._stores = stores
        self._owners = owners
        self._metrics = metrics
        self._follower = follower

    def register(self, server: WebhookServer) -> None:
        """Serve both paths."""
        shapes = self._integration.shapes
        mutate = mutating(self.mutate, with_request=True, pure=True, warn=self.warn)
        admit_knowing_owners(server, self.mutate_path, self._owners, mutate, shapes)
        server.validate(self.validate_path, self.judge, shapes)

    def mutate(self, obj: Obj, request: AdmissionRequest) -> Obj:
        """The object as it will be stored; the same object if nothing changes."""
        namespace = request.namespace
        has_ancestor = self._owners.is_child(obj, namespace)
        job = self._integration.job_type(obj)
        skipped = is_skipped(job)
        named = obj
        if not has_ancestor and not skipped:
            named = self._owners.queued_by_default(obj, namespace)
        made = default_job(
            self._integration,
            named,
            self._settings,
            namespace_labels=self._stores.namespace_labels(namespace),
            has_ancestor=has_ancestor,
            default_class=self._owners.default_class_for(obj),
        )
        if made is not obj and self._hold_reason and not request.dry_run:
            assert self._follower is not None
            self._metrics.held_back(self._follower.kind)
        return made

    def warn(self, made: Obj, request: AdmissionRequest) -> Iterator[str]:
        """Warnings if a new object is queued and asks for missing features, or has labels or
        annotations for a topology that have no effect.
        """
        job, namespace = self._integration.job_type(made), request.namespace
        labels = self._stores.namespace_labels(namespace)
        if self._settings.manages(job.queue_name, labels) and not (
            self._owners.is_child(made, namespace) or is_skipped(job)
        ):
            yield from warnings_about(asked_by_job(job, self._settings))
            yield from ignored_by_job(job)

    def judge(
        self, new: Obj | None, old: Obj | None, request: AdmissionRequest
    ) -> ValidationResult:
        """Every broken rule, and a warning if the new object cannot be started for now."""
        if new is None:
            return ValidationResult()
        defaults = self._owners.has_default_queue(request.namespace)
        errors = validate_job(self._integration, new, old, has_default_queue=defaults)
        warnings = []
        job = self._integration.job_type(new)
        labels = self._stores.namespace_labels(request.namespace)
        if old is None and self._hold_reason and self._settings.manages(job.queue_name, labels):
            warnings.append(f"it cannot start for now: {self._hold_reason}")
        return ValidationResult(errors, warnings)

    @property
    def _hold_reason(self) -> str:
        """Why jobs of the kind cannot be managed now; empty when they can."""
        standing = None if self._follower is None else self._follower.standing
        return standing.why if standing is not None and standing.state in HELD_BACK else ""


def asked_by_job(job: GenericJob, settings: JobSettings) -> Iterator[MissingFeature]:
    """The requests of a job for features that are missing; its rules are checked elsewhere."""
    yield from asked_by_object(job.resource.kind, job.raw)
    with contextlib.suppress(InvalidJob):
        for one in job.pod_sets():
            yield from asked_by_pods(one.name, one.template, settings)


def asked_by_pods(pod_set: str, template: Obj, settings: JobSettings) -> Iterator[MissingFeature]:
    """The requests of a raw pod template, or of a raw pod, for features that are missing.

    Args:
        pod_set: the name of its pod set.
        template: the template.
        settings: what is served.
    """
    yield from asked_by_template(pod_set, template, admits_claims=settings.admits_claims)
    if not settings.places_pods:
        request = topology_request(asking_annotations(template), None)
        yield from asked_by_topology(pod_set, request)


def ignored_by_job(job: GenericJob) -> Iterator[str]:
    """Requests of a job for a topology that have no effect, as sentences for people.

    Args:
        job: the job; if it is invalid, only its own metadata is checked.
    """
    templates: list[tuple[str, Obj]] = []
    with contextlib.suppress(InvalidJob):
        templates = [(one.path, one.template) for one in job.pod_sets()]
    return ignored_requests(job.raw["metadata"], templates)


def warnings_about(asked: Iterable[MissingFeature]) -> Iterator[str]:
    """A warning if an object asks for features that are missing."""
    if text := sentence(asked):
        yield f"it will wait: {text}"


def admit_knowing_owners(
    server: WebhookServer,
    path: str,
    owners: Owners,
    answer: AdmissionHandler,
    shapes: Shapes,
) -> None:
    """Serve the answers of a handler, which is asked once the owners of an object are known."""

    @functools.wraps(answer)
    async def handle(request: AdmissionRequest) -> Obj:
        if request.object is not None:
            await owners.learn(request.object, request.namespace)
        return answer(request)

    def at_once(request: AdmissionRequest) -> Obj | None:
        obj = request.object
        if obj is not None and owners.has_to_learn(obj, request.namespace):
            return None
        return answer(request)

    server.admit(path, handle, shapes, at_once)
