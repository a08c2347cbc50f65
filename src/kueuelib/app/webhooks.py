"""Everything that the manager's webhook server answers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kueuelib.api.meta import Obj
from kueuelib.controllers import webhooks as queueing
from kueuelib.errors import FieldError
from kueuelib.jobs.setup import JobWebhook
from kueuelib.runtime.webhook.admission import (
    AdmissionRequest,
    RequestMutator,
    Validator,
)
from kueuelib.runtime.webhook.server import WebhookServer


def register(server: WebhookServer, jobs: Iterable[JobWebhook]) -> None:
    """Serves the queueing kinds, and every kind of jobs."""
    queueing.serve(server)
    for found in jobs:
        server.mutate_with_request(found.mutate_path, _mutator(found))
        server.validate(found.validate_path, _validator(found))


def _mutator(webhook: JobWebhook) -> RequestMutator:
    def mutate(obj: Obj, request: AdmissionRequest) -> Obj:
        return webhook.default(obj, request.namespace)

    return mutate


def _validator(webhook: JobWebhook) -> Validator:
    def validate(new: Obj | None, old: Obj | None, _: AdmissionRequest) -> Sequence[FieldError]:
        return () if new is None else webhook.validate(new, old)

    return validate
