"""What the writer does when it is not the only one."""

from __future__ import annotations

from typing import Any

import pytest

from kueuelib.api.meta import Obj, ObjectKey
from kueuelib.errors import Conflict, Invalid, MethodNotAllowed, NotFound
from kueuelib.machinery.store import Store
from kueuelib.workload import states
from kueuelib.workload.writer import CONFLICTS, StatusWriter, on_newest

KEY = ObjectKey("ns", "w")
NOW = 1_700_000_000.0


def workload(version: int) -> Obj:
    metadata = {"name": "w", "namespace": "ns", "uid": "u", "resourceVersion": str(version)}
    kind = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload"}
    return {**kind, "metadata": metadata, "spec": {"podSets": []}, "status": {}}


class World:
    """An informer, and a server behind it that refuses what is scripted."""

    def __init__(self, known: int | None, stored: int | None, *failures: Exception) -> None:
        self.store: Store[Obj] = Store()
        self.stored = None if stored is None else workload(stored)
        self.failures = list(failures)
        self.tried: list[str] = []
        self.refreshed = 0
        if known is not None:
            self.learn(workload(known))

    def learn(self, obj: Obj, *, shared: bool = False) -> None:
        self.store.put(KEY, obj)

    async def refresh(self, _: ObjectKey) -> Obj | None:
        self.refreshed += 1
        if self.stored is None:
            self.store.remove(KEY)
        else:
            self.learn(self.stored)
        return self.stored

    async def attempt(self, wl: Obj) -> Obj | None:
        self.tried.append(wl["metadata"]["resourceVersion"])
        if self.failures:
            raise self.failures.pop(0)
        return workload(int(wl["metadata"]["resourceVersion"]) + 1)

    async def patch(self, _: Any, key: ObjectKey, body: Obj, *__: Any, **___: Any) -> Obj:
        answer = await self.attempt(body)
        assert answer is not None
        return {**answer, "status": body["status"]}

    @property
    def known(self) -> str:
        found = self.store.get(KEY)
        return "" if found is None else str(found["metadata"]["resourceVersion"])


async def run(world: World) -> Obj | None:
    return await on_newest(world, KEY, world.attempt)  # type: ignore[arg-type]


async def test_an_answer_is_known_at_once() -> None:
    world = World(3, 3)
    writer = StatusWriter(world, world)  # type: ignore[arg-type]
    answer = await writer.change(KEY, lambda wl: {**wl, "status": {"requeueState": {"count": 1}}})
    assert answer == world.store.get(KEY)
    assert (world.known, world.refreshed) == ("4", 0)


async def test_a_conflict_is_followed_by_a_read_and_another_try() -> None:
    world = World(3, 7, Conflict("changed"))
    assert await run(world) == workload(8)
    assert world.tried == ["3", "7"]


async def test_conflicts_without_end_are_told() -> None:
    world = World(3, 7, *(Conflict("changed") for _ in range(CONFLICTS)))
    with pytest.raises(Conflict, match="changes too fast"):
        await run(world)
    assert len(world.tried) == CONFLICTS


async def test_what_is_not_known_is_read_first() -> None:
    world = World(None, 7)
    await run(world)
    assert world.tried == ["7"]


@pytest.mark.parametrize("known", [None, 3])
async def test_what_is_gone_is_known_to_be_gone(known: int | None) -> None:
    world = World(known, None, NotFound("gone"))
    with pytest.raises(NotFound):
        await run(world)
    assert world.known == ""


async def test_what_is_not_found_but_was_made_again_is_tried_again() -> None:
    world = World(3, 9, NotFound("gone"))
    await run(world)
    assert world.tried == ["3", "9"]
    same = World(3, 3, NotFound("not the one that was meant"))
    with pytest.raises(NotFound):
        await run(same)
    assert same.tried == ["3"]


async def test_a_refusal_is_raised_as_it_is() -> None:
    world = World(3, 3, Invalid("no"))
    with pytest.raises(Invalid):
        await run(world)
    assert world.refreshed == 0


async def test_a_change_that_changes_nothing_is_not_sent() -> None:
    world = World(3, 3)
    writer = StatusWriter(world, world)  # type: ignore[arg-type]
    assert await writer.change(KEY, lambda wl: wl) is None
    assert await writer.change(KEY, lambda _: None) is None
    assert world.tried == []
    assert await writer.change(KEY, lambda wl: states.wait(wl, "Test", "why", NOW))
    assert states.condition(world.store.get(KEY) or {}, "QuotaReserved")["message"] == "why"


async def test_after_a_conflict_of_a_single_write_the_newest_state_is_known() -> None:
    world = World(3, 7, Conflict("changed"))
    writer = StatusWriter(world, world)  # type: ignore[arg-type]
    old = workload(3)
    with pytest.raises(Conflict):
        await writer.store(old, states.wait(old, "Test", "why", NOW))
    assert world.known == "7"


async def test_a_status_that_the_server_accepts_and_keeps_as_it_was_is_refused() -> None:
    class Resetting(World):
        async def patch(self, *args: Any, **options: Any) -> Obj:
            return {**await super().patch(*args, **options), "status": {}}

    world = Resetting(3, 3)
    writer = StatusWriter(world, world)  # type: ignore[arg-type]
    with pytest.raises(Invalid, match=r"conditions\[QuotaReserved\] is still .* changes it back"):
        await writer.change(KEY, lambda wl: states.wait(wl, "Pending", "not yet", NOW))
    assert world.known == "4"


async def test_a_kind_without_a_status_is_told_from_a_workload_that_is_gone() -> None:
    missing = NotFound("not found")
    missing.answer = "by HTTP"
    for refused in (True, False):
        world = World(3, 3 if refused else None, missing, missing)
        writer = StatusWriter(world, world)  # type: ignore[arg-type]
        error = MethodNotAllowed if refused else NotFound
        with pytest.raises(error):
            await run(world)
        world.learn(workload(3))
        new = states.wait(workload(3), "Pending", "not yet", NOW)
        with pytest.raises(error):
            await writer.store(workload(3), new)
