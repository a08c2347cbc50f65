"""Whatever happens to the engine: written down and told to another engine, it decides the same."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import orjson
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from places_world import RACK, TAINT, node, topology
from test_scheduler_histories import Histories

from kueuelib.api.meta import Obj, ObjectKey
from kueuelib.api.workload import HOST
from kueuelib.errors import ConfigError
from kueuelib.recording.reader import FORMAT, parse
from kueuelib.recording.rerun import Rerun
from kueuelib.recording.writer import Pseudonyms, RecordedEngine, Tape
from kueuelib.scheduler import events
from kueuelib.scheduler.decide.cycle import decide
from kueuelib.scheduler.engine import Engine
from kueuelib.scheduler.settings import FairSharingRules, Settings
from kueuelib.scheduler.topology.nodes import node_facts
from kueuelib.testing.builders import (
    make_cluster_queue,
    make_flavor,
    make_local_queue,
    make_workload,
)

HEADER: dict[str, Any] = {
    "recording": FORMAT,
    "version": "1",
    "at": 0.0,
    "life": "x",
    "part": 1,
    "by": "manager",
    "hash": "",
    "hashed": False,
    "configuration": {},
}


class Recorded(Histories):
    """Everything that can happen to an engine, with a tape."""

    rename: Callable[[], Callable[[Obj], Obj]] = staticmethod(lambda: lambda line: line)

    def __init__(self) -> None:
        super().__init__()
        self.tape = Tape(self.rename())
        self.engine = RecordedEngine(self.chosen, self.tape)

    def teardown(self) -> None:
        texts = [orjson.dumps(HEADER), *self.tape.take()]
        again = Rerun(lambda _: Engine(self.chosen))
        for line in parse(texts, "tape"):
            assert again.take(line) is None
        assert again.hash == self.tape.hash
        assert again.facts
        super().teardown()


class RecordedByShares(Recorded):
    """The same with fair sharing."""

    chosen = Settings(fair_sharing=FairSharingRules())


class RecordedUnderOtherNames(Recorded):
    """The same with pseudonyms, which keep the order of the names."""

    rename = staticmethod(lambda: Pseudonyms().rename)


_FEW = settings(
    max_examples=25,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
TestRecorded = Recorded.TestCase
TestRecorded.settings = _FEW
TestRecordedByShares = RecordedByShares.TestCase
TestRecordedByShares.settings = _FEW
TestRecordedUnderOtherNames = RecordedUnderOtherNames.TestCase
TestRecordedUnderOtherNames.settings = _FEW


def small_recording() -> list[dict[str, Any]]:
    """A few facts and cycles, one of them with a preemption."""
    tape = Tape()
    engine = RecordedEngine(tape=tape)
    preemption = {"withinClusterQueue": "LowerPriority"}
    for fact in (
        events.NamespaceSet("ns", {"team": "red"}),
        events.TopologySet(topology(RACK, HOST)),
        events.NodeSet(node_facts(node("h", "r", taints=[TAINT]))),
        events.ForeignPod(ObjectKey("ns", "agent"), "h", {"cpu": 1000, "pods": 1}),
        events.ForeignPod(ObjectKey("ns", "ended"), "", None),
        events.FlavorSet(make_flavor("f", {"kind": "one"})),
        events.ClusterQueueSet(make_cluster_queue("cq", {"f": {"cpu": 2}}, preemption=preemption)),
        events.LocalQueueSet(make_local_queue("q", "cq")),
        events.WorkloadSet(make_workload("low", "q", {"cpu": 2})),
    ):
        engine.observe(fact, 1000.0)
    for now in (1001.0, 1002.0):
        found = engine.next_cycle(now)
        if found is not None:
            engine.settle(decide(found, now), now)
        engine.observe(events.WorkloadSet(make_workload("high", "q", {"cpu": 1}, priority=1)), now)
    engine.observe(events.Forgotten(ObjectKey("ns", "low"), "low"), 1003.0)
    return [HEADER, *map(orjson.loads, tape.take())]


RECORDING = small_recording()
ODD = st.sampled_from(
    [None, True, -1, 0, 1.5, 1e300, 2**70, "", "x", "12 parsecs", [], [1], {}, {"a": None}]
)


@given(data=st.data())
def test_a_damaged_line_is_refused_or_gives_another_plan(data: st.DataObject) -> None:
    """Whatever stands in a field, nothing but a clear error or a difference comes of it."""
    lines = copy.deepcopy(RECORDING)
    place: Any = lines[data.draw(st.integers(0, len(lines) - 1))]
    while True:
        keys = sorted(place) if isinstance(place, dict) else list(range(len(place)))
        key = data.draw(st.sampled_from(keys))
        inner = place[key]
        if not isinstance(inner, dict | list) or not inner or data.draw(st.booleans()):
            break
        place = inner
    if data.draw(st.booleans()):
        place[key] = data.draw(ODD)
    else:
        del place[key]
    texts = [json.dumps(line).encode() for line in lines]
    assert outcome_of(texts).startswith(("tape:", "a difference", "the same"))


def outcome_of(texts: list[bytes]) -> str:
    """What a replay comes to; any other error than a clear one goes on."""
    again = Rerun(lambda _: Engine())
    try:
        for line in parse(texts, "tape"):
            if again.take(line) is not None:
                return "a difference"
    except ConfigError as error:
        return str(error)
    return "the same"


def test_nothing_damaged_is_the_same() -> None:
    again = Rerun(lambda _: Engine())
    for line in parse(map(orjson.dumps, RECORDING), "tape"):
        assert again.take(line) is None
    assert again.cycles == 2
