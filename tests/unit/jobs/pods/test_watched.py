"""Which pods of a cluster the manager keeps in memory."""

from __future__ import annotations

from unittest.mock import Mock

from kueuelib.api.kinds import PODS
from kueuelib.jobs.assembly import wire
from kueuelib.jobs.contract.settings import JobSettings
from kueuelib.runtime.cache import Cache
from kueuelib.runtime.client import Client


def test_pods_without_our_labels_are_not_watched() -> None:
    watched = set()

    class Watching(Cache):
        def informer(self, resource, **fields):
            if resource == PODS:
                watched.add(fields["label_selector"])
            return super().informer(resource, **fields)

    client = Mock(Client)
    wire(client, Watching(client), Mock(), JobSettings(frameworks=("pod",)))
    ours, queued = "kueue.x-k8s.io/managed", "kueue.x-k8s.io/queue-name"
    assert watched == {f"{ours}=true", f"{queued},{ours}!=true"}
