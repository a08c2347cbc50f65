"""The traces of Helios and Acme: one CSV row per job of a cluster with GPUs.

Their column `queue` is the time that a job waited, in seconds. The queue of a job is its virtual
cluster; Acme has the type of the job instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

from kueuelib.simulator.faults import Faults
from kueuelib.simulator.parsing import exact, moment, not_negative, whole
from kueuelib.simulator.readers.each import each
from kueuelib.simulator.readers.source import Source
from kueuelib.simulator.readers.tabled import Row, rows
from kueuelib.simulator.work import COMPLETED, CPU, FAILED, GPU, KILLED, Job, PodShape, pods

NEEDED = ("job_id", "user", "gpu_num", "cpu_num", "node_num", "state", "submit_time", "duration")
_ENDS = {"COMPLETED": COMPLETED, "CANCELLED": KILLED, "TIMEOUT": KILLED}


def read(path: Path, faults: Faults, source: Source) -> Iterator[Job]:
    """The jobs of a file.

    Args:
        path: the file; its name may end in `.gz`.
        faults: receives the lines that are left out.
        source: receives the names of the jobs.

    Raises:
        ConfigError: the file cannot be read, or a bad line with `--strict`.
    """
    yield from each(path, rows(path, NEEDED), lambda row: _job(row, faults), faults, source)


def _job(row: Row, faults: Faults) -> Job | None:
    if not row["duration"]:
        faults.drop("run time unknown")
        return None
    nodes = max(1, whole(row["node_num"] or 1, "node_num", least=0))
    shape = _shape(
        nodes,
        whole(row["gpu_num"] or 0, "gpu_num", least=0),
        exact(row["cpu_num"] or 0, "cpu_num"),
    )
    if not shape.requests:
        faults.drop("neither GPUs nor CPUs")
        return None
    return Job(
        name=row["job_id"],
        arrival=moment(row["submit_time"], "submit_time"),
        run_seconds=not_negative(row["duration"], "duration"),
        pod_sets=(shape,),
        queue=row.get("vc") or row.get("type", ""),
        end=_ENDS.get(row["state"], FAILED),
        user=row["user"],
        vc=row.get("vc", ""),
    )


def _shape(nodes: int, gpus: int, cpus: Fraction) -> PodShape:
    """One pod per node if the GPUs can be split evenly, otherwise one pod."""
    count = nodes if gpus % nodes == 0 else 1
    return pods({GPU: gpus // count, CPU: cpus / count}, count)
