"""Tests your controller against a hostile cluster; `kueuelib.testing` offers these names.

```python
from kueuelib.testing import create, trial


def users(draws):
    for n in range(5):
        yield create(draws.uniform(f"at-{n}", 0, 60), "boxes.example.com", box(n))


def each_box_has_a_pod(cluster):
    for box in cluster.objects("boxes.example.com"): ...  # yield a sentence for what is wrong


def test_boxes(storm):
    storm(trial(my_program, objects=[CRD], users=users, at_rest=[each_box_has_a_pod]))
```

`docs/storm.md` explains storms, faults and laws.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import attrs

from kueuelib.api.meta import Obj
from kueuelib.checks import Check, serve
from kueuelib.jobs.contract.generic_job import GenericJob
from kueuelib.jobs.contract.integration import Integration
from kueuelib.runtime.endpoint import Endpoint
from kueuelib.testing.storm.bundled import BundledManager, JobProgram
from kueuelib.testing.storm.campaign import apart, campaign, replay, shrunk
from kueuelib.testing.storm.draws import Draws
from kueuelib.testing.storm.environment import LawBook
from kueuelib.testing.storm.environment import WorldProgram as Program
from kueuelib.testing.storm.history import Commit
from kueuelib.testing.storm.laws import Tolerance
from kueuelib.testing.storm.profiles import Profile
from kueuelib.testing.storm.run import LIMIT, WATCHES
from kueuelib.testing.storm.seed_plan import SeedReport as Report
from kueuelib.testing.storm.seed_plan import summary, timeline
from kueuelib.testing.storm.trial import (
    ClusterState,
    CommitLaw,
    Function,
    GivenLaws,
    GivenProgram,
    Objects,
    RestLaw,
    Trial,
)
from kueuelib.testing.storm.users import Act, Scenario
from kueuelib.testing.storm.users import acts as verbs

__all__ = [
    "Act",
    "ClusterState",
    "Commit",
    "Draws",
    "Storm",
    "StormFailed",
    "Summary",
    "Trial",
    "create",
    "delete",
    "patch",
    "patch_status",
    "trial",
]

SEEDS: Final = range(1, 31)
"""The default seeds of a test."""
TRIES: Final = 60
"""The maximum number of storms that are played to shrink one."""
DEADLINE: Final = 3600.0
"""Real seconds after which the storms of one test count as hung."""
SHOWN: Final = 60
"""Lines of a timeline in the message of a failed test."""
KUEUE: Final = "kueue"
"""The process name of the bundled manager when a program needs one."""


Tried = Function | Check | Integration | type[GenericJob[Any]]
"""The kinds of programs that can be tried."""


def create(at: float, resource: str, obj: Obj) -> Act:
    """Return an act: a user creates an object.

    Args:
        at: Virtual seconds after the start of the storm.
        resource: Plural and group, for example `jobs.batch`, or `pods`.
        obj: The raw object.
    """
    meta = obj["metadata"]
    return Act(at, "", verbs.CREATE, resource, meta.get("namespace", ""), meta["name"], obj)


def patch(at: float, resource: str, namespace: str, name: str, body: Obj) -> Act:
    """Return an act: a user merges a patch into an object.

    Args:
        at: Virtual seconds after the start of the storm.
        resource: Plural and group.
        namespace: Empty for objects of the cluster.
        name: The name of the object.
        body: The JSON merge patch.
    """
    return Act(at, "", verbs.PATCH, resource, namespace, name, body)


def patch_status(at: float, resource: str, namespace: str, name: str, status: Obj) -> Act:
    """Return an act: a user merges fields into the status of an object; arguments as of `patch`."""
    return Act(at, "", verbs.PATCH_STATUS, resource, namespace, name, status)


def delete(at: float, resource: str, namespace: str, name: str) -> Act:
    """Return an act: a user deletes an object, and its dependents in the background."""
    return Act(at, "", verbs.DELETE, resource, namespace, name)


def trial(
    program: Tried,
    *,
    objects: Iterable[Obj] = (),
    users: Callable[[Draws], Iterable[Act]] | None = None,
    at_rest: Sequence[RestLaw] = (),
    at_commit: Sequence[CommitLaw] = (),
    kueue: bool | None = None,
    beside: Mapping[str, Function] | None = None,
    services: Mapping[str, str] | None = None,
    replicas: int = 1,
    resources: Sequence[str] | None = None,
    patience: float = 0.0,
) -> Trial:
    """Describe what storms try: a program, its users and its laws.

    Args:
        program: A coroutine function that runs the program against an API server until it is
            cancelled; it is called again after each crash. Or an admission check, or a
            `GenericJob` or `Integration`, each of which runs in a process of its own.
        objects: Raw objects that exist before the program starts, in this order: CRDs first.
        users: Yields what users do in one storm; every decision is drawn with its own label.
        at_rest: Laws of a state at rest: functions of a `ClusterState` that yield a sentence for
            each violation. The name of the function is the law's.
        at_commit: Laws of each write: functions of the `Commit` and of the `ClusterState` right
            after it.
        kueue: Whether the cluster has kueuelib's CRDs, webhooks and manager, without faults.
            `None`: for checks and kinds of jobs, but not for coroutine functions.
        beside: Further programs, without faults, by the names of their processes, for example the
            controller that creates the pods of a kind of jobs.
        services: Webhook Services of the program: `namespace/name` to `10.0.0.2:PORT`.
        replicas: The largest number of processes; more than one needs leader election.
        resources: Resources on which faults may focus; `None`: those that the program watches.
        patience: The longest wait of the program in seconds, for example its longest
            `requeue_after`.
    """

    def scenario(draws: Draws, profile: Profile) -> Scenario:
        del profile
        acts = [_labelled(number, act) for number, act in enumerate(users(draws) if users else ())]
        return Scenario((), tuple(sorted(acts, key=lambda act: (act.at, act.label))), ())

    def laws(stored: Objects, tolerance: Tolerance) -> LawBook:
        del tolerance
        return GivenLaws(stored, at_rest, at_commit)

    created = tuple(objects)
    companions: dict[str, Program] = {}
    if kueue or (kueue is None and isinstance(program, Check | Integration | type)):
        companions[KUEUE] = BundledManager()
    for name, function in (beside or {}).items():
        if name.startswith("manager") or name == KUEUE:
            raise ValueError(f"beside: {name!r} is taken; choose another name for the process")
        companions[name] = GivenProgram(function, created)
    return Trial(
        program=_program(program, created, services or {}),
        laws=laws,
        scenario=scenario,
        companions=companions,
        resources=None if resources is None else tuple(resources),
        limit=(LIMIT if KUEUE in companions else WATCHES) + patience,
        replicas=replicas,
    )


def _program(program: Tried, objects: tuple[Obj, ...], services: Mapping[str, str]) -> Program:
    if isinstance(program, Check):
        check = program

        async def decide(endpoint: Endpoint) -> None:
            await serve(check, kubeconfig=endpoint)

        return GivenProgram(decide, objects, services)
    if isinstance(program, Integration):
        return JobProgram(program, objects)
    if isinstance(program, type):
        return JobProgram(Integration.of(program), objects)
    return GivenProgram(program, objects, services)


def _labelled(number: int, act: Act) -> Act:
    if act.label:
        return act
    return attrs.evolve(act, label=f"act-{number}-{act.verb}-{act.name}")


@attrs.frozen
class Summary:
    """The result of the storms of one test.

    Attributes:
        seeds: How many storms were played.
        faults: How often each kind of fault was injected.
        commits: How many writes the API server accepted.
        failed: The report of the first storm that broke a law, shrunk; None if none did.
    """

    seeds: int
    faults: Mapping[str, int]
    commits: int
    failed: Report | None


class StormFailed(AssertionError):
    """A law was broken; the message shows the laws, the necessary faults, and how to replay it.

    Args:
        text: The message.
        report: The report of the storm.
    """

    def __init__(self, text: str, report: Report) -> None:
        super().__init__(text)
        self.report = report


@attrs.frozen
class Storm:
    """Plays storms for one test; the type of the fixture `storm`.

    Attributes:
        again: The command that runs the test again, for messages.
        seeds: The seeds on the command line, or None.
        replayed: The seed whose whole timeline is requested, or None.
    """

    again: str = ""
    seeds: range | None = None
    replayed: int | None = None

    def __call__(
        self,
        tried: Trial,
        *,
        seeds: Iterable[int] = SEEDS,
        profile: str = "mixed",
        workers: int = 2,
    ) -> Summary:
        """Play storms until a law is broken, each in its own process.

        Args:
            tried: The program to try.
            seeds: The seeds, unless the command line names others.
            profile: The family of storms, or `mixed`: each seed draws one.
            workers: How many storms are played at the same time.

        Raises:
            StormFailed: A law was broken.
            CopyFailed: The world did not start: the program ends or raises without any fault.
            RuntimeError: The platform has no `fork`, or an event loop runs in this thread.
        """
        _check_process()
        wanted = list(seeds if self.seeds is None else self.seeds)
        if self.replayed is not None:
            wanted = [self.replayed]
        outcome = apart(lambda: _played(tried, wanted, profile, workers), limit=DEADLINE)
        if outcome.failed is not None:
            raise StormFailed(self._message(outcome, outcome.failed), outcome.failed)
        return outcome

    def _message(self, outcome: Summary, report: Report) -> str:
        faults = sum(outcome.faults.values())
        lines = [f"{outcome.seeds} seeds, {faults} faults", *summary(report)]
        if report.labels:
            lines += ["needed for it:", *(f"  {label}" for label in report.labels)]
        story = list(timeline(attrs.evolve(report, violations=())))
        if self.replayed is None:
            story = _until_violation(story)[-SHOWN:]
        lines += ["timeline:", *(f"  {line}" for line in story)]
        if self.again:
            lines.append(f"replay: {self.again} --storm-replay={report.seed}")
        return "\n".join(lines)


def _until_violation(story: list[str]) -> list[str]:
    for number, line in enumerate(story):
        if " violation: " in line:
            return story[: number + 1]
    return story


def _check_process() -> None:
    if not hasattr(os, "fork"):
        raise RuntimeError("storms need os.fork: use Linux or macOS")
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise RuntimeError("storms have an event loop of their own: call them from a plain function")


def _played(tried: Trial, seeds: Sequence[int], profile: str, workers: int) -> Summary:
    """Play seeds until one breaks a law, and shrink that one."""
    faults: Counter[str] = Counter()
    played = commits = 0
    failed = None
    reports: Any = campaign(seeds, profile, workers=workers, trial=tried)
    for report in reports:
        played += 1
        commits += report.commits
        faults.update(report.faults)
        if report.violations:
            failed = report
            break
    reports.close()
    if failed is not None:
        failed = replay(failed.seed, failed.profile, trial=tried)
        failed = shrunk(failed, note=lambda _: None, tries=TRIES, trial=tried)
    return Summary(played, dict(sorted(faults.items())), commits, failed)
