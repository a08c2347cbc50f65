"""The table of phases and steps is what the functions do, and what the documentation draws."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kueuelib.api.meta import Obj
from kueuelib.workload import states
from kueuelib.workload.states import IllegalTransition, Phase

NOW = 1_700_000_000.0
ADMISSION = {"clusterQueue": "q"}
DOCUMENT = Path(__file__).parents[3] / "docs" / "designs" / "0003-life-of-a-workload.md"

STEPS: dict[str, Callable[[Obj], Obj]] = {
    "reserve": lambda wl: states.reserve(wl, ADMISSION, [], NOW),
    "sync_admitted": lambda wl: states.sync_admitted(wl, NOW),
    "mark_unhealthy": lambda wl: states.mark_unhealthy(wl, ["node-1"]),
    "place": lambda wl: states.place(wl, ADMISSION, [], NOW),
    "evict": lambda wl: states.evict(wl, "Test", "test", NOW),
    "preempt": lambda wl: states.preempt(wl, "InClusterQueue", "test", NOW),
    "release": lambda wl: states.release(wl, NOW),
    "cancel": lambda wl: states.cancel(wl, "Test", "test", NOW),
    "wait": lambda wl: states.wait(wl, "Test", "test", NOW),
    "change_pods": lambda wl: states.change_pods(wl, NOW),
    "hold_back": lambda wl: states.hold_back(wl, "test", NOW),
    "requeue": lambda wl: states.requeue(wl, NOW),
    "finish": lambda wl: states.finish(wl, "Succeeded", "test", NOW),
}


def pending(*checks: str) -> Obj:
    entries = [{"name": state, "state": state, "lastTransitionTime": ""} for state in checks]
    metadata = {"name": "w", "namespace": "ns", "uid": "u", "resourceVersion": "1"}
    spec = {"queueName": "q", "podSets": []}
    status = {"admissionChecks": entries}
    kind = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload"}
    return {**kind, "metadata": metadata, "spec": spec, "status": status}


def with_checks(wl: Obj, *checks: str) -> Obj:
    return {**wl, "status": {**wl["status"], **pending(*checks)["status"]}}


def examples() -> list[Obj]:
    """Workloads of every phase, with and without checks that are not ready."""
    admitted = states.reserve(pending(), ADMISSION, [], NOW)
    reserved = states.reserve(pending("Pending"), ADMISSION, [], NOW)
    evicting = states.evict(admitted, "Test", "test", NOW)
    return [
        pending(),
        pending("Pending"),
        states.release(evicting, NOW),
        states.hold_back(pending(), "test", NOW),
        reserved,
        with_checks(reserved, "Ready"),
        admitted,
        with_checks(admitted, "Pending"),
        evicting,
        states.evict(reserved, "Test", "test", NOW),
        states.finish(pending(), "Succeeded", "test", NOW),
        states.finish(admitted, "Succeeded", "test", NOW),
    ]


def test_the_examples_are_of_all_phases_and_the_steps_are_all() -> None:
    assert {states.phase_of(wl) for wl in examples()} == {*Phase}
    assert STEPS.keys() == states.STEPS.keys()


@pytest.mark.parametrize("step", STEPS)
def test_the_functions_do_what_the_table_says(step: str) -> None:
    found: dict[Phase, set[Phase]] = {}
    for wl in examples():
        before = states.phase_of(wl)
        if before not in states.STEPS[step]:
            with pytest.raises(IllegalTransition, match=f"it is {before.value}"):
                STEPS[step](wl)
        elif step != "reserve" or not states.is_held_back(wl):
            found.setdefault(before, set()).add(states.phase_of(STEPS[step](wl)))
    assert found == {phase: {*after} for phase, after in states.STEPS[step].items()}


def test_the_documentation_draws_the_table() -> None:
    drawn: dict[str, dict[Phase, set[Phase]]] = {}
    phases: list[Phase] = []
    for line in DOCUMENT.read_text().splitlines():
        cells = [cell.strip().strip("`") for cell in line.strip("|").split("|")]
        if cells[0] == "Step":
            phases = [Phase(name) for name in cells[1:]]
        elif phases and cells[0] in STEPS:
            drawn[cells[0]] = {
                phase: {Phase(name) for name in cell.split(", ")}
                for phase, cell in zip(phases, cells[1:], strict=True)
                if cell
            }
    table = states.STEPS.items()
    assert drawn == {step: {key: {*to} for key, to in row.items()} for step, row in table}
