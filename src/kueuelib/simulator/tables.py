"""The files of a simulation that grow while it runs: `jobs.csv` and `queues.csv`."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable
from typing import IO, Any

from kueuelib.scheduler.decide.cycle import Admit
from kueuelib.simulator.figures import shown
from kueuelib.simulator.listener import Listener
from kueuelib.simulator.live import Live
from kueuelib.simulator.meter import Meter
from kueuelib.simulator.work import COMPLETED, FAILED, KILLED

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
