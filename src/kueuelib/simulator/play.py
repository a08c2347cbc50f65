"""Runs a trace through one policy, with its files and figures."""

from __future__ import annotations

import csv
import math
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from pathlib import Path
from typing import IO, Any

import attrs

from kueuelib.api.meta import Obj, ObjectKey
from kueuelib.scheduler.decide.cycle import Admit
from kueuelib.scheduler.engine import Engine
from kueuelib.scheduler.explain.answer import Explanation, explain
from kueuelib.scheduler.explain.problems import problems_of
from kueuelib.scheduler.explain.world import World
from kueuelib.scheduler.object_reasons import ClusterQueueInactive
from kueuelib.scheduler.reasons import condition_reason, render
from kueuelib.scheduler.topology.room import free_rooms
from kueuelib.simulator.changes import ClusterChange
from kueuelib.simulator.cluster import ClusterSetup
from kueuelib.simulator.driver import Driver
from kueuelib.simulator.figures import shown
from kueuelib.simulator.history import ClusterHistory, Historian
from kueuelib.simulator.job_lifecycles import Timing
from kueuelib.simulator.live import Listener, Live
from kueuelib.simulator.meter import Longest, Meter, Rivals
from kueuelib.simulator.trace import COMPLETED, FAILED, KILLED, Sizes, Trace
from kueuelib.workload.life import LifeSettings

# ---- how the free room of nodes is spread over time (KEP-2724) -----------------------------------

PLACE_COLUMNS = ("time", "flavor", "level", "resource", "capacity", "free", "scattered", "largest")


class PlaceRows(Listener):
    """Writes the free room of nodes at most once per interval, and its means.

    Args:
        file: the open file.
        every: the interval in seconds.
    """

    def __init__(self, file: IO[str], every: float) -> None:
        self._rows = csv.writer(file, lineterminator="\n")
        self._rows.writerow(PLACE_COLUMNS)
        self._every = every
        self._sums: dict[tuple[str, str, str], float] = {}
        self._seconds = 0.0
        self.engine: Engine | None = None

    def rested(self, now: float, until: float) -> None:
        """Writes the state, unless more may change in the same interval."""
        assert self.engine is not None, "it is set before the run"
        if not self.engine.cache.nodes.flavors:
            return
        if until < math.inf and until // self._every == now // self._every:
            return
        seconds = 0.0 if until == math.inf else max(until - now, self._every)
        self._seconds += seconds
        for flavor, nodes in sorted(self.engine.cache.nodes.freeze().items()):
            for one in free_rooms(nodes):
                amounts = (one.capacity, one.free, one.scattered, one.largest)
                texts = (f"{shown(one.resource, amount):.10g}" for amount in amounts)
                self._rows.writerow((f"{now:.10g}", flavor, one.level, one.resource, *texts))
                key = flavor, one.level, one.resource
                self._sums[key] = self._sums.get(key, 0.0) + one.fragmentation * seconds

    def figures(self) -> Obj:
        """The mean fragmentation by flavor, level and resource; empty without topologies."""
        means: Obj = {}
        for (flavor, level, resource), area in sorted(self._sums.items()):
            mean = area / self._seconds if self._seconds else 0.0
            means.setdefault(flavor, {}).setdefault(level, {})[resource] = mean
        return means


# ---- the files of a simulation that grow while it runs: `jobs.csv` and `queues.csv` --------------

# The first columns are those of Batsim, spelled and ordered as there.
JOB_COLUMNS = (
    *("job_id", "workload_name", "profile", "submission_time", "requested_number_of_resources"),
    *("requested_time", "success", "final_state", "starting_time", "execution_time"),
    *("finish_time", "waiting_time", "turnaround_time", "stretch", "allocated_resources"),
    *("consumed_energy", "metadata", "queue", "cluster_queue", "flavors", "priority"),
    *("preemptions", "work_lost_seconds"),
)
QUEUE_COLUMNS = (
    *("time", "cluster_queue", "waiting", "holding"),
    *("flavor", "resource", "used", "nominal", "borrowed"),
)
_STATES = {
    COMPLETED: "COMPLETED_SUCCESSFULLY",
    FAILED: "COMPLETED_FAILED",
    KILLED: "COMPLETED_KILLED",
}
_OVER_LIMIT = "COMPLETED_WALLTIME_REACHED"


class JobRows(Listener):
    """Writes a row of `jobs.csv` for every job that ends.

    Args:
        file: the open file.
    """

    def __init__(self, file: IO[str]) -> None:
        self._rows = csv.writer(file, lineterminator="\n")
        self._rows.writerow(JOB_COLUMNS)
        self._flavors: dict[str, str] = {}

    def reserved(self, live: Live, admit: Admit | None, now: float) -> None:
        """Keeps the flavors of the last admission."""
        del admit, now
        self._flavors[live.workload.metadata.uid] = " ".join(
            sorted({pair.flavor for pair in live.usage})
        )

    def ended(self, live: Live, end: str, now: float) -> None:
        """Writes the row."""
        self._write(live, now, _STATES.get(end, _OVER_LIMIT), ended=True)

    def unfinished(self, lives: Iterable[Live], now: float) -> None:
        """Writes the rows of jobs that have not ended."""
        for live in lives:
            state = "RUNNING" if live.started is not None else "SUBMITTED"
            self._write(live, now, state, ended=False)

    def _write(self, live: Live, now: float, state: str, *, ended: bool) -> None:
        job, start = live.job, live.first_start
        turnaround = now - live.arrived if ended else None
        last = now - live.started if live.started is not None else None
        self._rows.writerow(
            _texts(
                job.name,
                job.namespace,
                job.shape,
                live.arrived,
                sum(shape.count for shape in job.pod_sets),
                job.requested_seconds,
                int(state == _STATES[COMPLETED]),
                state,
                start,
                last,
                now if ended else None,
                None if start is None else start - live.arrived,
                turnaround,
                turnaround / job.run_seconds
                if turnaround is not None and job.run_seconds
                else None,
                "",
                "",
                "",
                job.queue,
                live.cluster_queue,
                self._flavors.pop(live.workload.metadata.uid, ""),
                job.priority,
                live.preemptions,
                live.lost,
            )
        )


class QueueRows(Listener):
    """Writes rows of `queues.csv` for ClusterQueues that changed, at most once per interval.

    A row shows the state at the end of its interval, with the time of the last change; it holds
    until the next row of its queue.

    Args:
        file: the open file.
        meter: the source; it must receive every event first.
        every: the interval in seconds.
    """

    def __init__(self, file: IO[str], meter: Meter, every: float) -> None:
        self._rows = csv.writer(file, lineterminator="\n")
        self._rows.writerow(QUEUE_COLUMNS)
        self._meter = meter
        self._every = every

    def rested(self, now: float, until: float) -> None:
        """Writes the changed rows, unless more may change in the same interval."""
        if until < math.inf and until // self._every == now // self._every:
            return
        for name in sorted(self._meter.changed):
            queue = self._meter.queues.get(name)
            if queue is None:
                continue
            for pair, level in sorted(queue.used.items()):
                unit = pair.resource
                self._rows.writerow(
                    _texts(
                        now,
                        name,
                        queue.waiting.amount,
                        queue.holding.amount,
                        pair.flavor,
                        unit,
                        shown(unit, level.amount),
                        shown(unit, level.nominal),
                        shown(unit, max(0, level.amount - level.nominal)),
                    )
                )
        self._meter.changed.clear()


def _texts(*values: Any) -> list[str]:
    """Numbers without a superfluous decimal point; empty for None."""
    return [
        "" if value is None else f"{value:.10g}" if isinstance(value, float) else str(value)
        for value in values
    ]


# ---- the play ------------------------------------------------------------------------------------

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
    cluster: ClusterSetup
    life: LifeSettings = attrs.field(factory=LifeSettings)
    changes: tuple[ClusterChange, ...] = ()
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
    history: ClusterHistory
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
    """Runs a trace once, and writes `jobs.csv` and `queues.csv`, and `places.csv` with a topology.

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
    placing = policy.cluster.world.places(policy.cluster.world.cluster_queues)
    with (
        (folder / "jobs.csv").open("w", newline="") as jobs,
        (folder / "queues.csv").open("w", newline="") as queues,
        (folder / "places.csv").open("w", newline="") if placing else nullcontext() as places,
    ):
        rows = JobRows(jobs)
        tables = (rows, QueueRows(queues, meter, sample_seconds))
        rooms = [] if places is None else [PlaceRows(places, sample_seconds)]
        heard = (meter, historian, longest, rivals, *tables, *rooms, asker, *listeners)
        driver = asker.driver = Driver(
            policy.cluster, heard, changes=policy.changes, life=policy.life, timing=timing
        )
        for room in rooms:
            room.engine = driver.engine
        stops(driver.stop)
        driver.run(trace, trace.awaited)
        rows.unfinished(driver.live.values(), driver.now)
        longest.unfinished(driver.live.values(), driver.now)
    figures = meter.figures()
    figures["longest_waits"] = longest.figures()
    figures["preempted_by"] = rivals.figures()
    if rooms:
        figures["fragmentation"] = rooms[0].figures()
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
    world: World | None = None
    for key, live in driver.live.items():
        reason = driver.engine.standing(key).reason
        if live.started is not None:
            reasons["Running"] += 1
        elif reason is None:
            reasons["Unknown"] += 1
        else:
            named = condition_reason(reason)
            reasons[named] += 1
            if named not in examples:
                examples[named] = f"{key}: {render(reason)}"
                if isinstance(reason, ClusterQueueInactive):
                    world = world or driver.world()
                    problems = problems_of(world, key, reason)
                    causes = "; ".join(f"{one.subject}: {one.problem}" for one in problems)
                    examples[named] = ": ".join(filter(None, (examples[named], causes)))
    return {
        "unfinished_because": dict(sorted(reasons.items())),
        "unfinished_for_example": dict(sorted(examples.items())),
    }
