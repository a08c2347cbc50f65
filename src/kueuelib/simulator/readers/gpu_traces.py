"""Public traces of clusters with GPUs: Philly, Helios, Acme, PAI and openb.

The run time of a job is the sum of its attempts. It needs the GPUs of the first attempt that names
them, with one pod per machine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import attrs
import orjson

from kueuelib.errors import ConfigError
from kueuelib.simulator.parsing import (
    BadValue,
    Faults,
    exact,
    instant,
    moment,
    named,
    not_negative,
    number,
    whole,
)
from kueuelib.simulator.readers.source import (
    Row,
    TraceSource,
    each,
    lines,
    parsed,
    rows,
    whole_text,
)
from kueuelib.simulator.trace import (
    COMPLETED,
    CPU,
    FAILED,
    GPU,
    GPU_MILLI,
    KILLED,
    MEMORY,
    PodShape,
    TraceJob,
    pods,
)

# ---- the traces of Helios and Acme: one CSV row per job of a cluster with GPUs -------------------
# Their column `queue` is the time that a job waited, in seconds. The queue of a job is its virtual
# cluster; Acme has the type of the job instead.

HELIOS_COLUMNS = (
    "job_id",
    "user",
    "gpu_num",
    "cpu_num",
    "node_num",
    "state",
    "submit_time",
    "duration",
)
_HELIOS_ENDS = {"COMPLETED": COMPLETED, "CANCELLED": KILLED, "TIMEOUT": KILLED}


def read_helios(path: Path, faults: Faults, source: TraceSource) -> Iterator[TraceJob]:
    """The jobs of a file.

    Args:
        path: the file; its name may end in `.gz`.
        faults: receives the lines that are left out.
        source: receives the names of the jobs.

    Raises:
        ConfigError: the file cannot be read, or a bad line with `--strict`.
    """
    yield from each(
        path, rows(path, HELIOS_COLUMNS), lambda row: _helios_job(row, faults), faults, source
    )


def _helios_job(row: Row, faults: Faults) -> TraceJob | None:
    if not row["duration"]:
        faults.drop("run time unknown")
        return None
    nodes = max(1, whole(row["node_num"] or 1, "node_num", least=0))
    shape = _helios_shape(
        nodes,
        whole(row["gpu_num"] or 0, "gpu_num", least=0),
        exact(row["cpu_num"] or 0, "cpu_num"),
    )
    if not shape.requests:
        faults.drop("neither GPUs nor CPUs")
        return None
    return TraceJob(
        name=row["job_id"],
        arrival=moment(row["submit_time"], "submit_time"),
        run_seconds=not_negative(row["duration"], "duration"),
        pod_sets=(shape,),
        queue=row.get("vc") or row.get("type", ""),
        end=_HELIOS_ENDS.get(row["state"], FAILED),
        user=row["user"],
        vc=row.get("vc", ""),
    )


def _helios_shape(nodes: int, gpus: int, cpus: Fraction) -> PodShape:
    """One pod per node if the GPUs can be split evenly, otherwise one pod."""
    count = nodes if gpus % nodes == 0 else 1
    return pods({GPU: gpus // count, CPU: cpus / count}, count)


# ---- the pods of openb, Alibaba's trace of 2023 about sharing GPUs: one CSV row per pod ----------
# GPUs are counted in thousandths, because pods may share one. The requested GPU model is ignored.
# The machines are those of the list of nodes, if it is next to the list of pods.

OPENB_COLUMNS = (
    *("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "qos", "pod_phase"),
    *("creation_time", "deletion_time", "scheduled_time"),
)
NODES = "openb_node_list_all_node.csv"
_NODE = ("cpu_milli", "memory_mib", "gpu")
_OPENB_ENDS = {"Succeeded": COMPLETED, "Failed": FAILED}


def read_openb(path: Path, faults: Faults, source: TraceSource) -> Iterator[TraceJob]:
    """The pods of a file, each as a job.

    Args:
        path: the file; its name may end in `.gz`.
        faults: receives the lines that are left out.
        source: receives the machines and the names of the jobs.

    Raises:
        ConfigError: a file cannot be read, or a bad line with `--strict`.
    """
    nodes = path.with_name(NODES)
    if nodes.exists():
        table = rows(nodes, _NODE)
        source.machines.update(sum(parsed(nodes, table, _node, faults), Counter[str]()))
    yield from each(
        path, rows(path, OPENB_COLUMNS), lambda row: _openb_job(row, faults), faults, source
    )


def _node(row: Row) -> Counter[str]:
    return Counter(
        {
            CPU: whole(row["cpu_milli"], "cpu_milli", least=0) // 1000,
            MEMORY: whole(row["memory_mib"], "memory_mib", least=0) * 2**20,
            GPU_MILLI: whole(row["gpu"], "gpu", least=0) * 1000,
        }
    )


def _openb_job(row: Row, faults: Faults) -> TraceJob | None:
    if not row["scheduled_time"]:
        faults.drop("never started")
        return None
    if not row["deletion_time"]:
        faults.drop("run time unknown")
        return None
    created = moment(row["creation_time"], "creation_time")
    start = not_negative(row["scheduled_time"], "scheduled_time")
    end = not_negative(row["deletion_time"], "deletion_time")
    if end < start:
        raise BadValue("deletion_time", f"{end:g} is before scheduled_time {start:g}")
    gpus = whole(row["num_gpu"] or 0, "num_gpu", least=0)
    shape = pods(
        {
            CPU: Fraction(whole(row["cpu_milli"], "cpu_milli", least=0), 1000),
            MEMORY: f"{whole(row['memory_mib'], 'memory_mib', least=0)}Mi",
            GPU_MILLI: gpus * whole(row["gpu_milli"] or 0, "gpu_milli", least=0),
        }
    )
    return TraceJob(
        name=row["name"],
        arrival=created,
        run_seconds=end - start,
        pod_sets=(shape,),
        queue=row["qos"],
        end=_OPENB_ENDS.get(row["pod_phase"], KILLED),
        group=row["qos"],
    )


# Alibaba PAI 2020: a folder with the tables of jobs and tasks, and `.header` files next to them.
# A task is a pod set; a job runs as long as its longest task. A plan of 600 is 6 CPUs, a plan of 50
# half a GPU; GPUs are counted in thousandths. The table of instances is not needed.

PAI_JOBS, PAI_TASKS = "pai_job_table", "pai_task_table"
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


def read_pai(path: Path, faults: Faults, source: TraceSource) -> Iterator[TraceJob]:
    """The jobs of a folder.

    Args:
        path: the folder.
        faults: receives the lines that are left out.
        source: receives the names of the jobs.

    Raises:
        ConfigError: a table cannot be read, or a bad line with `--strict`.
    """
    tasks: dict[str, list[_Task]] = {}
    table = _table(path, PAI_TASKS, _TASK)
    for task in parsed(_file(path, PAI_TASKS), table, lambda row: _task(row, faults), faults):
        tasks.setdefault(task.job, []).append(task)
    table = _table(path, PAI_JOBS, _JOB)
    yield from each(
        _file(path, PAI_JOBS), table, lambda row: _pai_job(row, tasks, faults), faults, source
    )


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


def _pai_job(row: Row, tasks: dict[str, list[_Task]], faults: Faults) -> TraceJob | None:
    mine = tasks.pop(row["job_name"], [])
    if not mine:
        faults.drop("job without a task that ran")
        return None
    if not row["start_time"]:
        faults.drop("job without start")
        return None
    shapes = {task.shape.name: task.shape for task in mine}
    return TraceJob(
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


# --------------------------------------------------------------------------------------------------

_PHILLY_ENDS = {"Pass": COMPLETED, "Killed": KILLED, "Failed": FAILED}


def read_philly(path: Path, faults: Faults, source: TraceSource) -> Iterator[TraceJob]:
    """The jobs of a file.

    Args:
        path: the file; its name may end in `.gz`.
        faults: receives the jobs that are left out, by their number in the file.
        source: receives the names of the jobs.

    Raises:
        ConfigError: the file cannot be read or is not a JSON list, or a bad job with `--strict`.
    """
    try:
        content = orjson.loads(whole_text(path))
    except orjson.JSONDecodeError as error:
        raise ConfigError(f"{path}:{error.lineno}", str(error), "give a JSON file") from error
    if not isinstance(content, list):
        raise ConfigError(str(path), "is not a JSON list", "give cluster_job_log")
    entries = enumerate(content, 1)
    yield from each(path, entries, lambda entry: _philly_job(entry, faults), faults, source)


def _philly_job(entry: Any, faults: Faults) -> TraceJob | None:
    if not isinstance(entry, dict):
        raise BadValue("", "is not a JSON object")
    attempts = entry.get("attempts") or []
    if not isinstance(attempts, list) or not all(isinstance(one, dict) for one in attempts):
        raise BadValue("attempts", "is not a list of objects")
    ran = [
        _seconds(one) for one in attempts if _known(one, "start_time") and _known(one, "end_time")
    ]
    shape = _philly_shape(attempts)
    if not ran:
        faults.drop("no attempt that ended")
        return None
    if shape is None:
        faults.drop("number of GPUs unknown")
        return None
    vc = str(entry.get("vc") or "")
    return TraceJob(
        name=str(entry.get("jobid") or ""),
        arrival=moment(entry.get("submitted_time"), "submitted_time"),
        run_seconds=sum(ran),
        pod_sets=(shape,),
        queue=vc,
        end=_PHILLY_ENDS.get(str(entry.get("status")), FAILED),
        user=str(entry.get("user") or ""),
        vc=vc,
    )


def _known(attempt: Mapping[str, Any], field: str) -> bool:
    return attempt.get(field) not in (None, "", "None")


def _seconds(attempt: Mapping[str, Any]) -> float:
    start = instant(attempt["start_time"], "attempts.start_time")
    end = instant(attempt["end_time"], "attempts.end_time")
    if end < start:
        raise BadValue("attempts.end_time", "is before start_time")
    return end - start


def _philly_shape(attempts: list[Any]) -> PodShape | None:
    for attempt in attempts:
        detail = attempt.get("detail") or []
        try:
            gpus = Counter(len(machine["gpus"]) for machine in detail)
        except (TypeError, KeyError):
            raise BadValue("attempts.detail", "does not list the GPUs of machines") from None
        total = sum(size * count for size, count in gpus.items())
        if total:
            machines = gpus.total()
            count = machines if total % machines == 0 else 1
            return pods({GPU: total // count}, count)
    return None
