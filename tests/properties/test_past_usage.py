"""Past usage of LocalQueues against sums over single workloads."""

from __future__ import annotations

import random
from fractions import Fraction

import attrs
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from kueuelib.api.codec import decode
from kueuelib.api.kueue import LocalQueue
from kueuelib.api.meta import ObjectKey, format_time
from kueuelib.scheduler import events
from kueuelib.scheduler.engine import Engine
from kueuelib.scheduler.quota.past_usage import UsageRule
from kueuelib.scheduler.settings import Settings
from kueuelib.testing.builders import (
    make_assignment,
    make_cluster_queue,
    make_condition,
    make_flavor,
    make_local_queue,
    make_workload,
)

QUEUES = ("a", "b", "c")
BY_USAGE = {"admissionScope": {"admissionMode": "UsageBasedAdmissionFairSharing"}}


@attrs.frozen
class Run:
    """A workload that is admitted for a while.

    Attributes:
        name: its name.
        queue: its LocalQueue.
        cpu: what it asks for.
        begin: when it is admitted, in seconds.
        end: when it is gone.
    """

    name: str
    queue: str
    cpu: int
    begin: int
    end: int

    def admitted(self):
        return events.WorkloadSet(
            make_workload(
                self.name,
                self.queue,
                {"cpu": self.cpu},
                conditions=[
                    make_condition("QuotaReserved", at=self.begin),
                    make_condition("Admitted", at=self.begin),
                ],
                status={
                    "admission": {
                        "clusterQueue": "q",
                        "podSetAssignments": [make_assignment({"cpu": self.cpu}, "f")],
                    }
                },
            )
        )

    def gone(self):
        return events.WorkloadGone(ObjectKey("ns", self.name))


@st.composite
def runs(draw):
    count = draw(st.integers(1, 12))
    found = []
    for number in range(count):
        begin = draw(st.integers(10_000, 10_900))
        length = draw(st.integers(1, 900))
        queue, cpu = draw(st.sampled_from(QUEUES)), draw(st.integers(1, 64))
        found.append(Run(f"w{number}", queue, cpu, begin, begin + length))
    return found


RULES = st.builds(
    UsageRule,
    half_life=st.sampled_from([7.0, 60.0, 3600.0, 604800.0]),
    interval=st.sampled_from([1.0, 10.0, 300.0]),
)


def set_up(engine, now, stored=None):
    quotas = {"f": {"cpu": 1000}}
    for event in (
        events.NamespaceSet("ns", {}),
        events.FlavorSet(make_flavor("f")),
        events.ClusterQueueSet(make_cluster_queue("q", quotas, **BY_USAGE)),
        *(events.LocalQueueSet(local_queue(name, stored)) for name in QUEUES),
    ):
        engine.observe(event, now)


def local_queue(name, stored):
    found = make_local_queue(name, "q")
    if stored is None:
        return found
    raw = {
        "metadata": {"name": name, "namespace": "ns"},
        "spec": {"clusterQueue": "q"},
        "status": {
            "fairSharing": {
                "weightedShare": 0,
                "admissionFairSharingStatus": {
                    "consumedResources": {
                        each: f"{nanos}n" for each, nanos in stored[name].consumed.items()
                    },
                    "lastUpdate": format_time(stored[name].at),
                },
            }
        },
    }
    return decode(LocalQueue, raw)


def history(found):
    moments = [(run.begin, 1, run.admitted()) for run in found]
    moments += [(run.end, 0, run.gone()) for run in found]
    return sorted(moments, key=lambda moment: moment[:2])


def told(rule, found, until):
    """An engine that saw what happened until an instant."""
    engine = Engine(Settings(past_usage=rule))
    set_up(engine, 9000.0)
    for moment, _, event in history(found):
        if moment <= until:
            engine.observe(event, float(moment))
    engine.advance(float(until))
    return engine


def sampled(engine, queue):
    found = engine.past_usage.sample(ObjectKey("ns", queue))
    return found.consumed.get("cpu", 0) / 1e9


def naive(rule, found, queue, until):
    """The sum over all workloads up to the last sample."""
    last = until // rule.interval * rule.interval
    entry = 1 - 0.5 ** (rule.interval / rule.half_life)
    total = 0.0
    for run in found:
        if run.queue == queue and run.begin < last:
            since = 0.5 ** ((last - run.begin) / rule.half_life)
            rest = 0.5 ** ((last - min(run.end, last)) / rule.half_life)
            total += run.cpu * (rest - since + entry * since)
    return total


@settings(max_examples=25)
@given(runs(), RULES, st.integers(10_000, 12_500))
def test_past_usage_is_the_sum_over_all_workloads(found, rule, until):
    engine = told(rule, found, until)
    for queue in QUEUES:
        expected = naive(rule, found, queue, until)
        assert sampled(engine, queue) == pytest.approx(expected, rel=1e-6, abs=1e-6)


@settings(max_examples=25)
@given(runs(), RULES, st.integers(10_000, 12_000), st.integers(0, 1000), st.randoms())
def test_a_restart_does_not_change_past_usage(found, rule, until, later, chance):
    before = told(rule, found, until)
    last = before.past_usage.sample(ObjectKey("ns", "a")).at
    assume(not any(last < run.end <= until for run in found))
    stored = {queue: before.past_usage.sample(ObjectKey("ns", queue)) for queue in QUEUES}
    after = Engine(Settings(past_usage=rule))
    holding = [run.admitted() for run in found if run.begin <= until < run.end]
    chance.shuffle(holding)
    if chance.random() < 0.5:
        set_up(after, float(until), stored)
    for event in holding:
        after.observe(event, float(until))
    set_up(after, float(until), stored)
    for queue in QUEUES:
        key = ObjectKey("ns", queue)
        old, new = before.past_usage.value(key), after.past_usage.value(key)
        assert float(new) == pytest.approx(float(old), rel=1e-6, abs=1e-6)
    for engine in (before, after):
        engine.advance(float(until + later))
    for queue in QUEUES:
        expected = sampled(before, queue)
        assert sampled(after, queue) == pytest.approx(expected, rel=1e-6, abs=1e-6)


@settings(max_examples=10)
@given(runs(), RULES)
def test_the_same_history_gives_the_same_numbers_however_often_time_is_told(found, rule):
    often = Engine(Settings(past_usage=rule))
    set_up(often, 9000.0)
    ticks = [(moment, 2, None) for moment in range(10_000, 12_000, 97)]
    for moment, _, event in sorted([*history(found), *ticks], key=lambda each: each[:2]):
        often.advance(float(moment))
        if event is not None:
            often.observe(event, float(moment))
    seldom = told(rule, found, 12_000)
    often.advance(12_000.0)
    for queue in QUEUES:
        assert sampled(often, queue) == pytest.approx(sampled(seldom, queue), rel=1e-6, abs=1e-6)


def test_equal_histories_are_equal_to_the_last_digit():
    """Whatever the order of the LocalQueues and of the workloads of one instant."""
    chance = random.Random(4136)
    rule = UsageRule(half_life=3600.0, interval=10.0)
    found = [
        Run(f"{queue}{n}", queue, n + 1, 10_000 + 13 * n, 10_500 + 7 * n)
        for n in range(9)
        for queue in QUEUES
    ]
    for _ in range(3):
        chance.shuffle(found)
        engine = told(rule, found, 10_777)
        values = {engine.past_usage.value(ObjectKey("ns", queue)) for queue in QUEUES}
        assert len(values) == 1
        assert values.pop() > Fraction(0)
