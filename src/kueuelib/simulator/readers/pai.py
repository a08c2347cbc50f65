"""Alibaba PAI 2020: a folder with the tables of jobs and tasks, and `.header` files next to them.

A task is a pod set; a job runs as long as its longest task. A plan of 600 is 6 CPUs, a plan of 50
half a GPU; GPUs are counted in thousandths. The table of instances is not needed.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import attrs

from kueuelib.errors import ConfigError
from kueuelib.simulator.faults import BadValue, Faults
from kueuelib.simulator.parsing import exact, moment, named, number, whole
from kueuelib.simulator.readers.each import each, parsed
from kueuelib.simulator.readers.source import Source, lines
from kueuelib.simulator.readers.tabled import Row, rows
from kueuelib.simulator.work import COMPLETED, CPU, FAILED, GPU_MILLI, MEMORY, Job, PodShape, pods

JOBS, TASKS = "pai_job_table", "pai_task_table"
_JOB = ("job_name", "user", "status", "start_time")
_TASK = (
    *("job_name", "task_name", "inst_num", "status", "start_time", "end_time"),
    *("plan_cpu", "plan_mem", "plan_gpu"),
)


@attrs.frozen
class _Task:
    job: str
    shape: PodShape
    seconds: float
    gpu_type: str


def read(path: Path, faults: Faults, source: Source) -> Iterator[Job]:
    """The jobs of a folder.

    Args:
        path: the folder.
        faults: receives the lines that are left out.
        source: receives the names of the jobs.

    Raises:
        ConfigError: a table cannot be read, or a bad line with `--strict`.
    """
    tasks: dict[str, list[_Task]] = {}
    table = _table(path, TASKS, _TASK)
    for task in parsed(_file(path, TASKS), table, lambda row: _task(row, faults), faults):
        tasks.setdefault(task.job, []).append(task)
    table = _table(path, JOBS, _JOB)
    yield from each(_file(path, JOBS), table, lambda row: _job(row, tasks, faults), faults, source)


def _file(folder: Path, table: str) -> Path:
    return folder / f"{table}.csv"


def _table(
    folder: Path, name: str, needed: tuple[str, ...]
) -> Iterator[tuple[int, Row | BadValue]]:
    header = next((line for _, line in lines(folder / f"{name}.header")), "").strip()
    if not header:
        raise ConfigError(str(folder / f"{name}.header"), "is empty", "fetch it again")
    yield from rows(_file(folder, name), needed, header.split(","))


def _task(row: Row, faults: Faults) -> _Task | None:
    if not row["start_time"] or not row["end_time"]:
        faults.drop("task without start or end")
        return None
    seconds = number(row["end_time"], "end_time") - number(row["start_time"], "start_time")
    if seconds < 0:
        raise BadValue("end_time", "is before start_time")
    shape = pods(
        {
            CPU: exact(row["plan_cpu"] or 0, "plan_cpu") / 100,
            MEMORY: f"{_mebibytes(row['plan_mem'])}Mi",
            GPU_MILLI: Fraction(-(-exact(row["plan_gpu"] or 0, "plan_gpu") * 10 // 1)),
        },
        whole(row["inst_num"] or 1, "inst_num", least=1),
    )
    if not shape.requests:
        faults.drop("task without a plan")
        return None
    name = named(row["task_name"], "task")
    return _Task(row["job_name"], attrs.evolve(shape, name=name), seconds, row.get("gpu_type", ""))


def _mebibytes(text: str) -> int:
    """Planned memory in MiB; the table has GiB, with fractions."""
    return int(-(-exact(text or 0, "plan_mem") * 1024 // 1))


def _job(row: Row, tasks: dict[str, list[_Task]], faults: Faults) -> Job | None:
    mine = tasks.pop(row["job_name"], [])
    if not mine:
        faults.drop("job without a task that ran")
        return None
    if not row["start_time"]:
        faults.drop("job without start")
        return None
    shapes = {task.shape.name: task.shape for task in mine}
    return Job(
        name=row["job_name"],
        arrival=moment(row["start_time"], "start_time"),
        run_seconds=max(task.seconds for task in mine),
        pod_sets=tuple(shapes.values()),
        queue=named(mine[0].gpu_type, "cpu"),
        end=COMPLETED if row["status"] == "Terminated" else FAILED,
        user=row["user"],
        group=row["user"],
        vc=mine[0].gpu_type,
    )
