"""The work queue against an oracle that keeps one plain list and sorts it each time."""

from __future__ import annotations

from collections import Counter
from copy import deepcopy

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kueuelib.machinery.queue import QueueCore

keys = st.sampled_from("abcde")
delays = st.sampled_from([0.0, 0.0, 1.0, 2.0, 5.0])
PATIENCE = 4.0
priorities = st.sampled_from([None, -100, 0, 7])


class Oracle:
    """Records as dictionaries; every question is answered by a full scan."""

    def __init__(self):
        self.records = {}
        self.held = set()
        self.serial = 0
        self.overdue_before = False

    def tick(self):
        self.serial += 1
        return self.serial

    def promote(self, now):
        due = [r for r in self.records.values() if r["at"] is not None and r["at"] <= now]
        for record in sorted(due, key=lambda r: (r["at"], -r["priority"], r["serial"])):
            record.update(since=record["at"], at=None, serial=self.tick())

    def add(self, key, now, after, priority):
        self.promote(now)
        at = now + after if after > 0 else None
        priority = priority or 0
        record = self.records.get(key)
        if record is None:
            record = {"key": key, "at": at, "priority": priority, "since": now}
            self.records[key] = {**record, "serial": self.tick()}
            return
        if priority > record["priority"]:
            record.update(priority=priority, serial=self.tick())
        if record["at"] is not None:
            if at is None:
                record.update(since=now, at=None, serial=self.tick())
            else:
                record["at"] = min(at, record["at"])

    def pop(self, now):
        self.promote(now)
        free = [r for r in self.records.values() if r["at"] is None and r["key"] not in self.held]
        overdue = [r for r in free if now - r["since"] >= PATIENCE and not self.overdue_before]
        self.overdue_before = bool(overdue)
        if not free:
            return None
        if overdue:
            first = min(overdue, key=lambda r: (r["since"], r["serial"]))
        else:
            first = min(free, key=lambda r: (-r["priority"], r["serial"]))
        del self.records[first["key"]]
        self.held.add(first["key"])
        return first["key"], first["priority"]

    def deadline(self, now):
        self.promote(now)
        times = [r["at"] for r in self.records.values() if r["at"] is not None]
        for record in self.records.values():
            if record["at"] is None and record["key"] not in self.held:
                return now
        return min(times, default=None)


class QueueMachine(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.queue = QueueCore(patience=PATIENCE)
        self.oracle = Oracle()
        self.now = 0.0
        self.draining = False

    @precondition(lambda self: not self.draining)
    @rule(key=keys, after=delays, priority=priorities)
    def add(self, key, after, priority):
        self.oracle.promote(self.now)
        before = deepcopy(self.oracle.records)
        changed = self.queue.add(key, now=self.now, after=after, priority=priority)
        self.oracle.add(key, self.now, after, priority)
        assert changed == (self.oracle.records != before)

    @precondition(lambda self: self.draining)
    @rule(key=keys, after=delays)
    def add_is_ignored_after_shutdown(self, key, after):
        before = len(self.queue), self.queue.waiting
        assert not self.queue.add(key, now=self.now, after=after)
        assert (len(self.queue), self.queue.waiting) == before

    @rule()
    def pop(self):
        item = self.queue.pop_ready(self.now)
        assert (item and (item.key, item.priority)) == self.oracle.pop(self.now)
        if item:
            assert 0.0 <= item.waited <= self.now

    @precondition(lambda self: self.oracle.held)
    @rule(data=st.data())
    def done(self, data):
        key = data.draw(st.sampled_from(sorted(self.oracle.held)))
        settled = data.draw(st.booleans())
        _, again = self.queue.done(key, self.now, settled=settled)
        self.oracle.held.remove(key)
        added = key in self.oracle.records and self.oracle.records[key]["at"] is None
        assert again == (added and not settled)
        if added and settled:
            del self.oracle.records[key]

    @rule(seconds=st.sampled_from([0.5, 1.0, 3.0]))
    def advance(self, seconds):
        self.now += seconds

    @precondition(lambda self: not self.draining)
    @rule()
    def drain(self):
        self.queue.next_deadline(self.now)
        self.oracle.promote(self.now)
        self.queue.shut_down(drain=True)
        self.draining = True
        self.oracle.records = {k: r for k, r in self.oracle.records.items() if r["at"] is None}

    @invariant()
    def deadlines_and_depths_agree(self):
        assert self.queue.next_deadline(self.now) == self.oracle.deadline(self.now)
        ready = [r for r in self.oracle.records.values() if r["at"] is None]
        assert len(self.queue) == len(ready)
        assert self.queue.waiting == len(self.oracle.records) - len(ready)
        assert self.queue.depth == Counter(r["priority"] for r in ready)
        assert self.queue.processing == len(self.oracle.held)
        assert self.queue.exhausted == (self.draining and not self.oracle.records)
        assert self.queue.drained == (self.queue.exhausted and not self.oracle.held)


TestQueueMachine = QueueMachine.TestCase
TestQueueMachine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
