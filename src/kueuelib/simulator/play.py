"""Runs a trace through one policy, with its files and figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

import attrs

from kueuelib.api.meta import Obj, ObjectKey
from kueuelib.scheduler.explain.answer import Explanation, explain
from kueuelib.scheduler.reasons import condition_reason, render
from kueuelib.simulator.changes import Change
from kueuelib.simulator.cluster import Cluster
from kueuelib.simulator.driver import Driver
from kueuelib.simulator.history import Historian, History
from kueuelib.simulator.listener import Listener
from kueuelib.simulator.longest import Longest, Rivals
from kueuelib.simulator.meter import Meter
from kueuelib.simulator.tables import JobRows, QueueRows
from kueuelib.simulator.timing import Timing
from kueuelib.simulator.trace import Sizes, Trace
from kueuelib.workload.life import LifeSettings

BASELINE = "baseline"
"""The run without a policy."""


@attrs.frozen(eq=False)
class Policy:
    """One set of rules to try.

    Attributes:
        name: of the run and its folder.
        cluster: the queues, and the settings for decisions.
        life: the settings for times.
        changes: of the cluster over time.
        adds: kinds and names of the objects that a policy adds instead of replacing others.
        derived: raw objects that were made for the trace.
    """

    name: str
    cluster: Cluster
    life: LifeSettings = attrs.field(factory=LifeSettings)
    changes: tuple[Change, ...] = ()
    adds: tuple[str, ...] = ()
    derived: tuple[Obj, ...] = ()


@attrs.frozen
class Question:
    """A question to answer during the run.

    Attributes:
        job: the job.
        at: when, in seconds of the trace.
    """

    job: ObjectKey
    at: float


@attrs.frozen(eq=False)
class Played:
    """The result of a run.

    Attributes:
        figures: all measurements, as JSON.
        history: the ClusterQueues over time.
        waits: the waits of all jobs that started, in ascending order, each with how many jobs
            waited no longer.
        answers: by question, the explanation; None if the job did not exist at that time.
    """

    figures: Obj
    history: History
    waits: tuple[tuple[float, int], ...]
    answers: tuple[tuple[Question, Explanation | None], ...] = ()


class _Asker(Listener):
    """Explains jobs at the times in question."""

    def __init__(self, questions: Iterable[Question]) -> None:
        self._open = sorted(questions, key=lambda question: question.at)
        self.answers: list[tuple[Question, Explanation | None]] = []
        self.driver: Driver | None = None

    def rested(self, now: float, until: float) -> None:
        """Answers the questions about times before `until`."""
        while self._open and self._open[0].at < until:
            question = self._open.pop(0)
            self.answers.append((question, self._answer(question, now)))

    def _answer(self, question: Question, now: float) -> Explanation | None:
        assert self.driver is not None, "it is set before the run"
        world = self.driver.world()
        if question.at < now or question.job not in world.workloads:
            return None
        return explain(world, question.job, question.at)


def play(
    trace: Trace,
    policy: Policy,
    folder: Path,
    *,
    timing: Timing,
    sizes: Sizes,
    sample_seconds: float,
    questions: Iterable[Question] = (),
    listeners: Iterable[Listener] = (),
    stops: Callable[[Callable[[], None]], None] = lambda _: None,
) -> Played:
    """Runs a trace once, and writes `jobs.csv` and `queues.csv`.

    Args:
        trace: the jobs.
        policy: the rules.
        folder: an existing folder for the files.
        timing: the durations besides run times.
        sizes: which jobs are large.
        sample_seconds: the interval between the rows of a queue in `queues.csv`.
        questions: to answer during the run.
        listeners: receive every event as well.
        stops: receives a function that ends the run with the results so far.

    Raises:
        ConfigError: two jobs of one name at the same time.
        OSError: a file cannot be written.
    """
    meter, asker = Meter(policy.cluster, sizes), _Asker(questions)
    historian = Historian(meter, (trace.last or 0.0) - (trace.first or 0.0))
    longest, rivals = Longest(), Rivals()
    with (
        (folder / "jobs.csv").open("w", newline="") as jobs,
        (folder / "queues.csv").open("w", newline="") as queues,
    ):
        rows = JobRows(jobs)
        tables = (rows, QueueRows(queues, meter, sample_seconds))
        heard = (meter, historian, longest, rivals, *tables, asker, *listeners)
        driver = asker.driver = Driver(
            policy.cluster, heard, changes=policy.changes, life=policy.life, timing=timing
        )
        stops(driver.stop)
        driver.run(trace, trace.awaited)
        rows.unfinished(driver.live.values(), driver.now)
        longest.unfinished(driver.live.values(), driver.now)
    figures = meter.figures()
    figures["longest_waits"] = longest.figures()
    figures["preempted_by"] = rivals.figures()
    figures["changes"] = [{"at": change.at, "what": list(change.what)} for change in policy.changes]
    figures["simulation"] = {
        "interrupted": driver.interrupted,
        "events": driver.events,
        "cycles": driver.cycles,
        "stalls": driver.stalls,
        "jobs_without_their_predecessor": driver.orphans,
        "jobs_not_submitted": trace.count - meter.total.jobs,
        "unfinished": len(driver.live),
        **_why(driver),
    }
    waits = meter.total.wait.steps()
    return Played(figures, historian.history(), waits, tuple(asker.answers))


def _why(driver: Driver) -> Obj:
    """How many jobs have not ended, by reason, with the first message of each."""
    reasons: Counter[str] = Counter()
    examples: dict[str, str] = {}
    for key, live in driver.live.items():
        reason = driver.engine.standing(key).reason
        if live.started is not None:
            reasons["Running"] += 1
        elif reason is None:
            reasons["Unknown"] += 1
        else:
            reasons[condition_reason(reason)] += 1
            examples.setdefault(condition_reason(reason), f"{key}: {render(reason)}")
    return {
        "unfinished_because": dict(sorted(reasons.items())),
        "unfinished_for_example": dict(sorted(examples.items())),
    }
