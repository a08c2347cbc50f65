"""Several candidates, slow calls, lost answers, pauses: never two leaders at one moment."""

from __future__ import annotations

import itertools
from functools import partial

import attrs
from hypothesis import given, settings
from hypothesis import strategies as st

from kueuelib.api.meta import ObjectKey
from kueuelib.errors import Conflict, TransportError
from kueuelib.machinery.election import (
    Cancelled,
    CreateLease,
    ElectionCore,
    ElectionOptions,
    ElectionOver,
    ElectionTick,
    Failed,
    Fetched,
    GetLease,
    Pause,
    UpdateLease,
    Written,
)

LEASE = ObjectKey("ns", "manager")


class Server:
    def __init__(self):
        self.lease = None
        self.version = 0
        self.late = []  # calls that still arrive after nothing waits for them

    def catch_up(self):
        late, self.late = self.late, []
        for call in late:
            call()

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
    """A process; after a lost lease it stands again, as itself or under another name."""

    def __init__(self, name, server, offset, *, renamed=False):
        self.name, self.server, self.offset, self.renamed = name, server, offset, renamed
        self.lives = 0
        self.reborn(0.0)

    def reborn(self, now):
        self.lives += 1
        name = f"{self.name}-{self.lives}" if self.renamed else self.name
        options = ElectionOptions(LEASE, name)
        self.core = ElectionCore(options)
        self.take(self.core.start(now + self.offset), now)

    def take(self, commands, now):
        if not commands:
            return
        self.task = commands[-1]
        self.due = now + self.task.seconds if isinstance(self.task, Pause) else now

    def act(self, now, how):
        """Do what is due; `how` says what becomes of a call."""
        if isinstance(self.task, ElectionOver):
            self.reborn(now)
            return
        if isinstance(self.task, Pause):
            answer = ElectionTick() if now >= self.due else None
        elif how == "hang":
            answer = None
        elif how == "lost request":
            answer = Failed(TransportError("https://x", "reset"))
        elif how == "late":
            self.server.late.append(partial(self.call, self.task))
            answer = Failed(TransportError("https://x", "no answer in time"))
        else:
            answer = self.call(self.task)
            if how == "lost answer":
                answer = Failed(TransportError("https://x", "reset"))
        if answer is not None:
            local = now + self.offset
            self.take(self.core.step(answer, local, now - 7 * self.offset, 0.5), now)

    def call(self, task):
        match task:
            case GetLease():
                return Fetched(self.server.lease)
            case CreateLease(lease):
                return self.server.write(lease, create=True)
            case UpdateLease(lease):
                return self.server.write(lease, create=False)

    def leads(self, now):
        return self.core.is_leader(now + self.offset)


OUTCOMES = st.sampled_from(
    ["fine", "fine", "fine", "hang", "lost request", "lost answer", "late", "catch up"]
)
MOVES = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from([0.0, 0.1, 1.0, 2.0, 4.0]), OUTCOMES),
    max_size=120,
)


@settings(max_examples=80, deadline=None)
@given(MOVES, st.tuples(*[st.floats(0, 1000)] * 3), st.booleans())
def test_there_is_never_more_than_one_leader(moves, offsets, renamed):
    server = Server()
    people = [
        Candidate(f"c{n}", server, offset, renamed=renamed) for n, offset in enumerate(offsets)
    ]
    now = 0.0
    for who, seconds, how in moves:
        now += seconds
        if how == "catch up":
            server.catch_up()
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
        if how == "catch up":
            server.catch_up()
        people[who].act(now, how)
    server.catch_up()
    for _ in range(400):
        now += 0.1
        for each in people:
            each.act(now, "fine")
    assert sum(each.leads(now) for each in people) == 1


@settings(max_examples=100, deadline=None)
@given(
    st.floats(0, 60),
    st.lists(st.floats(0, 0.999), min_size=1, max_size=8),
    st.sampled_from(["kill", "release"]),
)
def test_another_leads_soon_after_the_end_of_a_leader(lived, chances, end):
    """Calls take 0.1 s. After a kill: lease duration and 2 s. After a release: 2 s."""
    server = Server()
    step = 0.01
    dead, heir = (Timed(n, server, chances) for n in ("dead", "heir"))
    now = 0.0
    while now < 5.0 + lived:
        now += step
        dead.act(now)
        heir.act(now)
    assert dead.core.is_leader(now)
    if end == "release":
        dead.release(now)
    limit = now + 2.0 + (dead.core.options.lease_duration if end == "kill" else 0.0)
    while not heir.core.is_leader(now):
        now += step
        heir.act(now)
        assert now <= limit


class Timed:
    """A candidate whose calls take their time, with jitter that is given."""

    CALL = 0.1

    def __init__(self, name, server, chances):
        self.candidate = Candidate(name, server, 0.0)
        self.chances = itertools.cycle(chances)
        self.due = self.CALL if name == "dead" else 1.0

    @property
    def core(self):
        return self.candidate.core

    def act(self, now):
        if now < self.due:
            return
        task = self.candidate.task
        answer = ElectionTick() if isinstance(task, Pause) else self.candidate.call(task)
        found = self.core.step(answer, now, now, next(self.chances))
        self.candidate.take(found, now)
        task = self.candidate.task
        self.due = now + (task.seconds if isinstance(task, Pause) else self.CALL)

    def release(self, now):
        options = attrs.evolve(self.core.options, release_on_cancel=True)
        self.core.options = options
        _, update = self.core.step(Cancelled(), now, now, 0.0)
        assert isinstance(self.candidate.call(update), Written)
