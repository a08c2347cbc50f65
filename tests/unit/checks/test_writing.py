"""Entries are written on the newest object, and what was written is read at once."""

from __future__ import annotations

import copy

import pytest

from kueuelib.api.kinds import WORKLOADS
from kueuelib.api.meta import ObjectKey
from kueuelib.checks import Check
from kueuelib.checks.moves import entry_of
from kueuelib.checks.reconciler import EntryWriter
from kueuelib.errors import Conflict, NotFound
from kueuelib.machinery.store import Store
from kueuelib.workload.writer import CONFLICTS

KEY = ObjectKey("ns", "wl")


def workload(version, uid="u", state="Pending"):
    meta = {"name": "wl", "namespace": "ns", "uid": uid, "resourceVersion": str(version)}
    entry = {"name": "check", "state": state, "message": "", "lastTransitionTime": "t"}
    return {
        "apiVersion": WORKLOADS.api_version,
        "kind": "Workload",
        "metadata": meta,
        "spec": {},
        "status": {"admissionChecks": [entry]},
    }


class Workloads:
    """An informer that remembers what it learns; `server` is what a refresh finds."""

    resource = WORKLOADS

    def __init__(self, server=None):
        self.store, self.server, self.calls = Store(), server, []

    def learn(self, answer):
        self.calls.append(("learn", answer["metadata"]["resourceVersion"]))
        self.store.put(KEY, answer)

    async def refresh(self, key):
        self.calls.append(("refresh", key))
        return self.server


class Server:
    """Refuses as often as it should, then answers with the state that was sent."""

    def __init__(self, *refusals):
        self.refusals, self.sent = list(refusals), []

    async def patch(self, resource, key, body, patch_type, **options):
        self.sent.append(body)
        if self.refusals:
            raise self.refusals.pop(0)
        return workload(50, state=body["status"]["admissionChecks"][0]["state"])


class Notes:
    def event(self, obj, type, reason, message, component=None):
        pass


async def write(server, workloads, still=lambda _: True):
    async def never(workload, parameters, context):
        raise AssertionError

    writer = EntryWriter(
        Check("example.com/check", never), server, workloads, lambda: frozenset({"check"}), Notes()
    )

    def ready(_, entry):
        return {**copy.deepcopy(dict(entry)), "state": "Ready", "message": ""}

    return await writer.write(workload(7), "check", ready, still)


async def test_the_answer_is_learned():
    workloads = Workloads()
    workloads.store.put(KEY, workload(7))
    written = await write(Server(), workloads)
    assert entry_of(written, "check")["state"] == "Ready"
    assert workloads.calls == [("learn", "50")]
    assert workloads.store.get(KEY) is written


@pytest.mark.parametrize("error", [Conflict("changed"), NotFound("gone")])
async def test_after_a_refusal_the_object_is_read_and_written_again(error):
    server, workloads = Server(error), Workloads(workload(9))
    workloads.store.put(KEY, workload(7))
    assert await write(server, workloads) is not None
    assert workloads.calls == [("refresh", KEY), ("learn", "50")]
    assert len(server.sent) == 2


@pytest.mark.parametrize("now", [None, workload(9, uid="another")])
async def test_nothing_is_written_to_an_object_that_took_the_place(now):
    server, workloads = Server(Conflict("changed")), Workloads(now)
    workloads.store.put(KEY, workload(7))
    assert await write(server, workloads) is None
    assert len(server.sent) == 1


async def test_an_object_that_changes_all_the_time_is_left_to_the_retry():
    server = Server(*[Conflict("changed")] * 10)
    workloads = Workloads(workload(9))
    workloads.store.put(KEY, workload(7))
    with pytest.raises(Conflict, match="changes too fast"):
        await write(server, workloads)
    assert len(server.sent) == CONFLICTS
