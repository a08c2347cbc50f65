"""What the controller of a kind does first with the jobs that it finds at its start."""

from __future__ import annotations

from time import monotonic
from typing import Any, cast
from unittest.mock import Mock

from kueuelib.api.kinds import JOBS
from kueuelib.api.meta import key_of
from kueuelib.jobs.assembly import wire
from kueuelib.jobs.batch import BATCH_JOB
from kueuelib.jobs.contract.settings import JobSettings
from kueuelib.runtime.cache import Cache
from kueuelib.runtime.client import Client
from kueuelib.runtime.controller import Controller


def job(name: str, spec: object) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "ns", "uid": name}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}


def test_jobs_that_wait_go_before_those_that_run():
    client = Mock(Client)
    cache = Cache(client)
    (controller,) = wire(client, cache, Mock(), JobSettings()).controllers
    store = cache.informer(JOBS, transform=BATCH_JOB.transform).store
    for obj in (
        job("broken", ["suspend"]),
        job("runs", {"suspend": False}),
        job("waits", {"suspend": True}),
    ):
        store.put(key_of(obj), obj)
    queue = cast(Controller, controller).queue
    cast(Controller, controller).listen()
    items = iter(lambda: queue.core.pop_ready(monotonic()), None)
    assert [item.key.name for item in items] == ["waits", "broken", "runs"]
