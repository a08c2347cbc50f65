from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable

import pytest

from kueuelib.errors import HistoryLost, LeadershipLost, StopTimeout
from kueuelib.runtime.leader import Elector
from kueuelib.runtime.manager import START_ORDER, Group, Manager, Signals


class Part:
    """Notes when it starts and stops; becomes ready when told."""

    def __init__(
        self,
        name: str,
        journal: list[str],
        *,
        fail: Exception | None = None,
        ready: bool = True,
        stop_error: Exception | None = None,
    ) -> None:
        self.name, self.journal, self.fail = name, journal, fail
        self.ready_at_once, self.stop_error = ready, stop_error
        self.started = asyncio.Event()

    async def run(self, ready: Callable[[], None]) -> None:
        self.journal.append(f"+{self.name}")
        self.started.set()
        self.ready = ready
        if self.fail is not None:
            raise self.fail
        if self.ready_at_once:
            ready()
        try:
            await asyncio.Event().wait()
        finally:
            self.journal.append(f"-{self.name}")
            if self.stop_error is not None:
                raise self.stop_error


async def started(manager: Manager) -> asyncio.Task[None]:
    task = asyncio.create_task(manager.run())
    async with asyncio.timeout(60):
        while not manager.ready and not task.done():
            await asyncio.sleep(0.001)
    await asyncio.sleep(0)  # the tasks of the last group exist, and begin now
    return task


async def test_parts_start_and_stop_in_order():
    journal: list[str] = []
    manager = Manager()
    for group in reversed(START_ORDER):
        manager.add(group, Part(group.value, journal))
    task = await started(manager)
    assert journal == ["+events", "+servers", "+webhooks", "+caches", "+others", "+elected"]
    journal.clear()
    manager.stop()
    await task
    assert journal == ["-others", "-elected", "-caches", "-webhooks", "-servers", "-events"]
    assert not manager.ready


async def test_a_group_waits_until_the_one_before_is_ready():
    journal: list[str] = []
    manager = Manager()
    slow = Part("cache", journal, ready=False)
    manager.add(Group.CACHES, slow)
    manager.add(Group.OTHERS, Part("controller", journal))
    task = asyncio.create_task(manager.run())
    await slow.started.wait()
    await asyncio.sleep(0.01)
    assert journal == ["+cache"]
    assert not manager.ready
    slow.ready()
    async with asyncio.timeout(60):
        while not manager.ready:
            await asyncio.sleep(0.001)
    assert journal == ["+cache", "+controller"]
    manager.stop()
    await task


async def test_a_part_that_fails_stops_everything_and_is_reported():
    journal: list[str] = []
    manager = Manager()
    manager.add(Group.CACHES, Part("cache", journal))
    manager.add(Group.OTHERS, Part("bad", journal, fail=RuntimeError("broken")))
    manager.add(Group.ELECTED, Part("never", journal))
    with pytest.raises(RuntimeError, match="broken"):
        await manager.run()
    assert journal == ["+cache", "+bad", "-cache"]


async def test_a_part_that_fails_before_it_is_ready_does_not_block_the_start():
    manager = Manager()
    manager.add(Group.CACHES, Part("never ready", [], ready=False))
    manager.add(Group.CACHES, Part("bad", [], fail=ValueError("early")))
    with pytest.raises(ValueError, match="early"):
        await asyncio.wait_for(manager.run(), 60)


async def test_cancelling_stops_in_order_too():
    journal: list[str] = []
    manager = Manager()
    manager.add(Group.SERVERS, Part("server", journal))
    manager.add(Group.OTHERS, Part("other", journal))
    task = await started(manager)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert journal[2:] == ["-other", "-server"]


async def test_parts_that_do_not_end_are_named():
    class Stubborn:
        async def run(self, ready: Callable[[], None]) -> None:
            ready()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                await asyncio.sleep(60)

    journal: list[str] = []
    manager = Manager(stop_deadline=0.05)
    manager.add(Group.OTHERS, Stubborn(), "stubborn")
    manager.add(Group.SERVERS, Part("server", journal))
    task = await started(manager)
    manager.stop()
    with pytest.raises(StopTimeout, match=r"did not end within 0.05 s: stubborn") as caught:
        await task
    assert caught.value.names == ("stubborn",)
    assert journal == ["+server", "-server"]


async def test_an_error_while_stopping_is_logged_only():
    manager = Manager()
    manager.add(Group.OTHERS, Part("a", [], stop_error=RuntimeError("late")))
    task = await started(manager)
    manager.stop()
    await task


async def test_parts_may_be_added_later_but_not_while_stopping():
    journal: list[str] = []
    manager = Manager()
    task = await started(manager)
    manager.add(Group.OTHERS, Part("late", journal))
    await asyncio.sleep(0)
    assert journal == ["+late"]
    manager.stop()
    await task
    with pytest.raises(RuntimeError, match="takes no further parts"):
        manager.add(Group.OTHERS, Part("x", journal))
    with pytest.raises(RuntimeError, match="run only once"):
        await manager.run()


class FakeElector(Elector):
    def __init__(self) -> None:
        self.won, self.lose = asyncio.Event(), asyncio.Event()
        self._leads = False
        self.standing, self.expired = True, False

    def hold(self) -> None:
        self.standing = False

    def stand(self) -> None:
        self.standing = True

    @property
    def leading(self) -> bool:
        return self._leads

    def is_leader(self) -> bool:
        return self._leads and not self.expired

    async def run(self, ready: Callable[[], None]) -> None:
        await self.won.wait()
        self._leads = True
        ready()
        await self.lose.wait()
        raise LeadershipLost("too slow")


async def test_elected_parts_wait_for_the_election_while_others_run():
    journal: list[str] = []
    elector = FakeElector()
    manager = Manager(elector=elector)
    manager.add(Group.OTHERS, Part("other", journal))
    manager.add(Group.ELECTED, Part("elected", journal))
    task = await started(manager)
    assert journal == ["+other"]
    elector.won.set()
    async with asyncio.timeout(60):
        while "+elected" not in journal:
            await asyncio.sleep(0.001)
    elector.lose.set()
    with pytest.raises(LeadershipLost, match="too slow"):
        await task


async def test_the_lease_is_observed_while_parts_start_but_not_taken_before_they_are_ready():
    release, seen = asyncio.Event(), []
    elector = FakeElector()

    class Slow:
        async def run(self, ready: Callable[[], None]) -> None:
            seen.append(elector.standing)
            await release.wait()
            ready()
            await asyncio.Event().wait()

    manager = Manager(elector=elector)
    manager.add(Group.CACHES, Slow())
    task = asyncio.create_task(manager.run())
    async with asyncio.timeout(60):
        while not seen:
            await asyncio.sleep(0.001)
        assert seen == [False]
        release.set()
        while not elector.standing:
            await asyncio.sleep(0.001)
    manager.stop()
    await task


class Copy:
    """Notes when it catches up; a part like a cache."""

    def __init__(self, journal: list[str], fail: Exception | None = None) -> None:
        self.journal, self.fail = journal, fail
        self.caught_up = asyncio.Event()

    async def run(self, ready: Callable[[], None]) -> None:
        ready()
        await asyncio.Event().wait()

    async def catch_up(self) -> None:
        self.journal.append("catches up")
        if self.fail is not None:
            raise self.fail
        await self.caught_up.wait()


async def noted(journal: list[str], entry: str) -> None:
    async with asyncio.timeout(60):
        while entry not in journal:
            await asyncio.sleep(0.001)


async def test_elected_parts_of_a_new_leader_wait_until_its_copies_have_caught_up():
    journal: list[str] = []
    elector, copy = FakeElector(), Copy(journal)
    manager = Manager(elector=elector)
    manager.add(Group.CACHES, copy)
    manager.add(Group.ELECTED, Part("elected", journal))
    task = await started(manager)
    assert journal == []
    elector.won.set()
    await noted(journal, "catches up")
    await asyncio.sleep(0.01)
    assert (journal, manager.ready) == (["catches up"], True)
    copy.caught_up.set()
    await noted(journal, "+elected")
    manager.stop()
    await task


async def test_a_new_leader_that_cannot_catch_up_ends():
    journal: list[str] = []
    elector = FakeElector()
    elector.won.set()
    manager = Manager(elector=elector)
    manager.add(Group.CACHES, Copy(journal, fail=RuntimeError("no list")))
    manager.add(Group.ELECTED, Part("elected", journal))
    with pytest.raises(RuntimeError, match="no list"):
        await manager.run()
    assert journal == ["catches up"]


async def test_a_leader_that_is_lost_or_stopped_while_it_catches_up_starts_nothing():
    for how in ("lost", "stopped"):
        journal: list[str] = []
        elector = FakeElector()
        elector.won.set()
        manager = Manager(elector=elector)
        manager.add(Group.CACHES, Copy(journal))
        manager.add(Group.ELECTED, Part("elected", journal))
        task = asyncio.create_task(manager.run())
        await noted(journal, "catches up")
        if how == "lost":
            elector.lose.set()
            with pytest.raises(LeadershipLost, match="too slow"):
                await task
        else:
            manager.stop()
            await task
        assert journal == ["catches up"]


async def test_nothing_is_written_once_a_part_has_found_that_the_history_is_lost():
    class Late(Part):
        async def run(self, ready: Callable[[], None]) -> None:
            try:
                await super().run(ready)
            finally:
                with pytest.raises(HistoryLost):
                    manager.require_leadership()

    lost = HistoryLost("jobs", 20, 15)
    journal: list[str] = []
    manager = Manager()
    manager.add(Group.CACHES, Late("caches", journal))
    both = ExceptionGroup("both", [OSError("broken"), ExceptionGroup("inner", [lost])])
    manager.add(Group.OTHERS, Part("other", journal, fail=both))
    manager.require_leadership()
    with pytest.raises(HistoryLost):
        await manager.run()
    assert "-caches" in journal


async def test_leadership_is_required_of_a_manager_with_an_elector_only():
    Manager().require_leadership()
    elector = FakeElector()
    manager = Manager(elector=elector)
    with pytest.raises(LeadershipLost):
        manager.require_leadership()
    elector.won.set()
    task = await started(manager)
    async with asyncio.timeout(60):
        while not elector.leading:
            await asyncio.sleep(0.001)
    manager.require_leadership()
    elector.expired = True
    with pytest.raises(LeadershipLost):
        manager.require_leadership()
    manager.stop()
    await task


async def test_a_manager_that_never_led_starts_nothing_elected_when_it_stops():
    journal: list[str] = []
    manager = Manager(elector=FakeElector())
    manager.add(Group.ELECTED, Part("elected", journal))
    task = await started(manager)
    manager.stop()
    await task
    assert journal == []


async def test_the_first_signal_stops():
    stopped = asyncio.Event()
    with Signals(stopped.set):
        with pytest.raises(RuntimeError, match="installed already"), Signals(stopped.set):
            pass
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait_for(stopped.wait(), 60)


def test_the_second_signal_ends_the_process_with_1():
    code = """
        import asyncio, os, signal
        from kueuelib.runtime.manager import Signals
        async def main():
            with Signals(lambda: print("stopping", flush=True)):
                os.kill(os.getpid(), signal.SIGTERM)
                await asyncio.sleep(0.05)
                os.kill(os.getpid(), signal.SIGINT)
                await asyncio.sleep(30)
        asyncio.run(main())
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "stopping" in done.stdout
