"""All webhooks of the manager's server."""

from __future__ import annotations

from collections.abc import Iterable

from kueuelib.controllers import webhooks as queueing
from kueuelib.jobs.reconcile.self_wired import Webhook
from kueuelib.runtime.webhook.server import WebhookServer


def register(server: WebhookServer, jobs: Iterable[Webhook]) -> None:
    """Serves the queueing kinds, and every kind of jobs."""
    queueing.serve(server)
    for webhook in jobs:
        webhook.register(server)
