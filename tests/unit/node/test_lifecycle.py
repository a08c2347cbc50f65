"""What a node does next for a pod, and how its status reads."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kueuelib.api.meta import find_condition
from kueuelib.node.lifecycle import (
    LOST,
    NEW,
    ContainerFacts,
    PodActions,
    PodEnd,
    PodPlace,
    Termination,
    after_end,
    after_start,
    backoff,
    facts_from,
    is_sidecar,
    next_actions,
    pod_end,
    pod_status,
)

NOW = 1_000_000.0
PLACE = PodPlace("127.64.0.1", "127.0.0.1", NOW - 5)
UP = ContainerFacts(since=NOW - 1, started=True, ready=True)
STARTING = ContainerFacts(since=NOW - 1)


def ended(code: int, *, crashes: int = 0, at: float = NOW - 1) -> ContainerFacts:
    return ContainerFacts(
        restarts=crashes, crashes=crashes, ended=Termination(code, at - 1, at, "Error")
    )


def pod(policy: str = "Always", **fields: Any) -> dict[str, Any]:
    spec = {"restartPolicy": policy, "containers": [{"name": "a", "image": "x"}], **fields}
    meta = {"name": "p", "namespace": "n", "uid": "u"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


TWO = [{"name": "a"}, {"name": "b"}]
INITS = [{"name": "i"}, {"name": "s", "restartPolicy": "Always"}, {"name": "j"}]
END = PodEnd(30.0)


@pytest.mark.parametrize(
    ("spec", "known", "end", "wanted"),
    [
        ({"containers": TWO}, {}, None, PodActions(("a", "b"))),
        ({"containers": TWO}, {"a": UP}, None, PodActions(("b",))),
        ({"initContainers": INITS}, {}, None, PodActions(("i",))),
        ({"initContainers": INITS}, {"i": STARTING}, None, PodActions()),
        ({"initContainers": INITS}, {"i": ended(0)}, None, PodActions(("s",))),
        ({"initContainers": INITS}, {"i": ended(0), "s": STARTING}, None, PodActions()),
        ({"initContainers": INITS}, {"i": ended(0), "s": UP}, None, PodActions(("j",))),
        (
            {"initContainers": INITS},
            {"i": ended(0), "s": UP, "j": ended(0)},
            None,
            PodActions(("a",)),
        ),
        # A sidecar that has ended is started again beside the others.
        (
            {"initContainers": INITS},
            {"i": ended(0), "s": ended(0), "j": ended(0), "a": UP},
            None,
            PodActions(("s",)),
        ),
        # When the others are done, sidecars end.
        (
            {"initContainers": INITS, "policy": "Never"},
            {"i": ended(0), "s": UP, "j": ended(0), "a": ended(3)},
            None,
            PodActions(stop=("s",)),
        ),
        (
            {"initContainers": INITS, "policy": "Never"},
            {"i": ended(1)},
            None,
            PodActions(over=True),
        ),
        ({"initContainers": INITS}, {"i": ended(1)}, None, PodActions(("i",))),
        ({"policy": "Never"}, {"a": ended(0)}, None, PodActions(over=True)),
        ({"policy": "OnFailure"}, {"a": ended(0)}, None, PodActions(over=True)),
        ({"policy": "OnFailure"}, {"a": ended(1)}, None, PodActions(("a",))),
        ({}, {"a": ended(0)}, None, PodActions(("a",))),
        ({}, {"a": ended(1, crashes=1)}, None, PodActions(due=NOW + 9)),
        ({}, {"a": ended(1, crashes=2)}, None, PodActions(due=NOW + 19)),
        ({}, {"a": ended(1, crashes=2, at=NOW - 20)}, None, PodActions(("a",))),
        ({}, {"a": ContainerFacts(retry=NOW + 2)}, None, PodActions(due=NOW + 2)),
        ({"containers": TWO}, {"a": UP, "b": UP}, END, PodActions(stop=("a", "b"))),
        ({"containers": TWO}, {"a": attrs.evolve(UP, stopping=True)}, END, PodActions()),
        ({"containers": TWO}, {"a": ended(143), "b": ended(143)}, END, PodActions(over=True)),
        ({"initContainers": INITS}, {"s": UP, "a": UP}, END, PodActions(stop=("a",))),
        ({"initContainers": INITS}, {"s": UP, "a": ended(0)}, END, PodActions(stop=("s",))),
    ],
)
def test_what_is_due(
    spec: dict[str, Any], known: dict[str, ContainerFacts], end: PodEnd | None, wanted: PodActions
) -> None:
    given_pod = pod(spec.pop("policy", "Always"), **spec)
    assert next_actions(given_pod["spec"], known, NOW, end) == wanted


def test_back_off_doubles_and_is_forgotten_after_ten_minutes_of_running() -> None:
    assert [backoff(each) for each in range(8)] == [0, 10, 20, 40, 80, 160, 300, 300]
    crashing = after_start(ended(1, crashes=3), NOW, probed=False, ready=True)
    assert (crashing.restarts, crashing.crashes) == (4, 4)
    short = after_end(crashing, Termination(1, NOW, NOW + 599, "Error"))
    calm = after_end(crashing, Termination(1, NOW, NOW + 600, "Error"))
    assert (short.crashes, calm.crashes, calm.restarts) == (4, 0, 4)


@pytest.mark.parametrize(
    ("meta", "spec", "shutdown", "grace", "reason"),
    [
        ({}, {"activeDeadlineSeconds": 5}, False, 30.0, "DeadlineExceeded"),
        ({}, {"activeDeadlineSeconds": 6}, False, None, ""),
        ({}, {"terminationGracePeriodSeconds": 3}, True, 3.0, "Terminated"),
        ({"deletionGracePeriodSeconds": 4}, {}, False, 4.0, ""),
        ({"deletionGracePeriodSeconds": 0}, {}, True, 0.0, ""),
    ],
)
def test_why_a_pod_ends(
    meta: dict[str, Any], spec: dict[str, Any], shutdown: bool, grace: float | None, reason: str
) -> None:
    given_pod = pod(**spec)
    if meta:
        given_pod["metadata"] |= {"deletionTimestamp": "1970-01-12T13:46:44Z", **meta}
    end = pod_end(given_pod, NOW, NOW - 5, shutdown=shutdown)
    assert (None if end is None else end.grace) == grace
    assert ((end is not None and end.reason) or "") == reason


def status(
    given_pod: dict[str, Any], known: dict[str, ContainerFacts], end: PodEnd | None = None
) -> dict[str, Any]:
    over = next_actions(given_pod["spec"], known, NOW, end).over
    return pod_status(given_pod, known, PLACE, NOW, end, over=over)


@pytest.mark.parametrize(
    ("policy", "facts", "end", "phase", "ready"),
    [
        ("Always", NEW, None, "Pending", "False"),
        ("Always", STARTING, None, "Running", "False"),
        ("Always", UP, None, "Running", "True"),
        ("Never", ended(0), None, "Succeeded", "False"),
        ("Never", ended(3), None, "Failed", "False"),
        ("OnFailure", ended(3), None, "Running", "False"),
        ("Always", ended(0), END, "Succeeded", "False"),
        ("Always", NEW, END, "Failed", "False"),
        ("Always", ended(0), PodEnd(1, "DeadlineExceeded", "late"), "Failed", "False"),
    ],
)
def test_the_phase_and_the_condition(
    policy: str, facts: ContainerFacts, end: PodEnd | None, phase: str, ready: str
) -> None:
    written = status(pod(policy), {"a": facts}, end)
    assert written["phase"] == phase
    assert find_condition(written["conditions"], "Ready")["status"] == ready
    assert written.get("reason", "") == ("" if end is None else end.reason)


def test_a_restart_that_waits_shows_its_last_end() -> None:
    (entry,) = status(pod(), {"a": ended(3, crashes=2)})["containerStatuses"]
    assert entry["state"]["waiting"]["reason"] == "CrashLoopBackOff"
    assert "back-off 20s restarting failed container=a" in entry["state"]["waiting"]["message"]
    assert entry["lastState"]["terminated"]["exitCode"] == 3
    assert entry["restartCount"] == 2


def test_what_waits_says_why() -> None:
    facts = ContainerFacts(waiting=("ErrImageNeverPull", "give --image x=FOLDER"))
    (entry,) = status(pod(), {"a": facts})["containerStatuses"]
    assert entry["state"] == {
        "waiting": {"reason": "ErrImageNeverPull", "message": "give --image x=FOLDER"}
    }


def test_readiness_gates_are_honoured() -> None:
    gated = pod(readinessGates=[{"conditionType": "example.com/up"}])
    assert find_condition(status(gated, {"a": UP})["conditions"], "Ready")["status"] == "False"
    gated["status"] = {"conditions": [{"type": "example.com/up", "status": "True"}]}
    assert find_condition(status(gated, {"a": UP})["conditions"], "Ready")["status"] == "True"


def test_what_ran_when_the_node_ended_is_lost() -> None:
    running = pod("Never")
    running["status"] = status(running, {"a": UP})
    (facts,) = facts_from(running, NOW + 60).values()
    assert facts.ended is not None
    assert (facts.ended.code, facts.ended.reason) == (137, LOST)
    assert status(running, {"a": facts})["phase"] == "Failed"


FACTS = st.one_of(
    st.just(NEW),
    st.builds(ContainerFacts, since=st.just(NOW - 1), started=st.booleans()),
    st.builds(ended, st.sampled_from([0, 1]), crashes=st.integers(0, 3)),
)


@given(
    st.sampled_from(["Always", "OnFailure", "Never"]),
    st.dictionaries(st.sampled_from("isjab"), FACTS),
    st.sampled_from([None, END]),
)
def test_every_pod_makes_progress(
    policy: str, known: dict[str, ContainerFacts], end: PodEnd | None
) -> None:
    """Something runs, is due, or all is over; what ends is never started."""
    spec = pod(policy, containers=TWO, initContainers=INITS)["spec"]
    actions = next_actions(spec, known, NOW, end)
    running = {name for name, facts in known.items() if facts.running}
    assert not running & {*actions.start}
    assert {*actions.stop} <= running
    assert running or actions.start or actions.over or actions.due is not None
    assert not (actions.start and (actions.stop or actions.over or end))
    assert not (actions.over and running)


@given(st.lists(st.integers(0, 1), max_size=6), st.sampled_from(["Always", "OnFailure", "Never"]))
def test_a_facts_survive_the_return_of_the_node(codes: list[int], policy: str) -> None:
    """What a status says of ended containers is read back as it was."""
    given_pod = pod(policy, initContainers=[each for each in INITS if is_sidecar(each)])
    facts = NEW
    for number, code in enumerate(codes):
        facts = after_start(facts, NOW + number, probed=False, ready=True)
        facts = after_end(facts, Termination(code, NOW + number, NOW + number, "Error"))
    given_pod["status"] = status(given_pod, {"a": facts})
    read = facts_from(given_pod, NOW)["a"]
    assert (read.restarts, read.ended) == (facts.restarts, facts.ended)
