"""The pods of openb, Alibaba's trace of 2023 about sharing GPUs: one CSV row per pod.

GPUs are counted in thousandths, because pods may share one. The requested GPU model is ignored. The
machines are those of the list of nodes, if it is next to the list of pods.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

from kueuelib.simulator.faults import BadValue, Faults
from kueuelib.simulator.parsing import moment, not_negative, whole
from kueuelib.simulator.readers.each import each, parsed
from kueuelib.simulator.readers.source import Source
from kueuelib.simulator.readers.tabled import Row, rows
from kueuelib.simulator.work import COMPLETED, CPU, FAILED, GPU_MILLI, KILLED, MEMORY, Job, pods

NEEDED = (
    *("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "qos", "pod_phase"),
    *("creation_time", "deletion_time", "scheduled_time"),
)
NODES = "openb_node_list_all_node.csv"
_NODE = ("cpu_milli", "memory_mib", "gpu")
_ENDS = {"Succeeded": COMPLETED, "Failed": FAILED}


def read(path: Path, faults: Faults, source: Source) -> Iterator[Job]:
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
    yield from each(path, rows(path, NEEDED), lambda row: _job(row, faults), faults, source)


def _node(row: Row) -> Counter[str]:
    return Counter(
        {
            CPU: whole(row["cpu_milli"], "cpu_milli", least=0) // 1000,
            MEMORY: whole(row["memory_mib"], "memory_mib", least=0) * 2**20,
            GPU_MILLI: whole(row["gpu"], "gpu", least=0) * 1000,
        }
    )


def _job(row: Row, faults: Faults) -> Job | None:
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
    return Job(
        name=row["name"],
        arrival=created,
        run_seconds=end - start,
        pod_sets=(shape,),
        queue=row["qos"],
        end=_ENDS.get(row["pod_phase"], KILLED),
        group=row["qos"],
    )
