"""Several candidates, slow calls, lost answers, pauses: never two leaders at one moment."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from kueuelib.api.meta import ObjectKey
from kueuelib.errors import Conflict, TransportError
from kueuelib.machinery.election import (
    CreateLease,
    ElectionCore,
    ElectionOptions,
    Failed,
    Fetched,
    GetLease,
    Stop,
    Tick,
    UpdateLease,
    Wait,
    Written,
)

LEASE = ObjectKey("ns", "manager")


class Server:
    def __init__(self):
        self.lease = None
        self.version = 0

    def write(self, lease, create):
        current = self.lease and self.lease["metadata"]["resourceVersion"]
        sent = lease["metadata"].get("resourceVersion")
        if (create and self.lease is not None) or (not create and current != sent):
            return Failed(Conflict("changed"))
        self.version += 1
        meta = {**lease["metadata"], "resourceVersion": str(self.version)}
        self.lease = {**lease, "metadata": meta}
        return Written(self.lease)


class Candidate:
    def __init__(self, name, server, offset):
        self.name, self.server, self.offset = name, server, offset
        self.lives = 0
        self.reborn(0.0)

    def reborn(self, now):
        self.lives += 1
        options = ElectionOptions(LEASE, f"{self.name}-{self.lives}")
        self.core = ElectionCore(options)
        self.take(self.core.start(now + self.offset), now)

    def take(self, commands, now):
        if not commands:
            return
        self.task = commands[-1]
        self.due = now + self.task.seconds if isinstance(self.task, Wait) else now

    def act(self, now, how):
        """Do what is due; `how` says what becomes of a call."""
        if isinstance(self.task, Stop):
            self.reborn(now)
            return
        if isinstance(self.task, Wait):
            answer = Tick() if now >= self.due else None
        elif how == "hang":
            answer = None
        elif how == "lost request":
            answer = Failed(TransportError("https://x", "reset"))
        else:
            match self.task:
                case GetLease():
                    answer = Fetched(self.server.lease)
                case CreateLease(lease):
                    answer = self.server.write(lease, create=True)
                case UpdateLease(lease):
                    answer = self.server.write(lease, create=False)
            if how == "lost answer":
                answer = Failed(TransportError("https://x", "reset"))
        if answer is not None:
            local = now + self.offset
            self.take(self.core.step(answer, local, now - 7 * self.offset, 0.5), now)

    def leads(self, now):
        return self.core.is_leader(now + self.offset)


OUTCOMES = st.sampled_from(["fine", "fine", "fine", "hang", "lost request", "lost answer"])
MOVES = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from([0.0, 0.1, 1.0, 2.0, 4.0]), OUTCOMES),
    max_size=120,
)


@settings(max_examples=200, deadline=None)
@given(MOVES, st.tuples(*[st.floats(0, 1000)] * 3))
def test_there_is_never_more_than_one_leader(moves, offsets):
    server = Server()
    people = [Candidate(f"c{n}", server, offset) for n, offset in enumerate(offsets)]
    now = 0.0
    for who, seconds, how in moves:
        now += seconds
        people[who].act(now, how)
        assert sum(each.leads(now) for each in people) <= 1


@settings(max_examples=100, deadline=None)
@given(MOVES)
def test_somebody_leads_again_once_all_is_well(moves):
    server = Server()
    people = [Candidate(f"c{n}", server, 10.0 * n) for n in range(3)]
    now = 0.0
    for who, seconds, how in moves:
        now += seconds
        people[who].act(now, how)
    for _ in range(400):
        now += 0.1
        for each in people:
            each.act(now, "fine")
    assert sum(each.leads(now) for each in people) == 1
