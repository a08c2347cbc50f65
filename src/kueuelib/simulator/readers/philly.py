"""The trace of Philly: `cluster_job_log`, one JSON list of jobs with their attempts.

The run time of a job is the sum of its attempts. It needs the GPUs of the first attempt that names
them, with one pod per machine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import orjson

from kueuelib.errors import ConfigError
from kueuelib.simulator.faults import BadValue, Faults
from kueuelib.simulator.parsing import instant, moment
from kueuelib.simulator.readers.each import each
from kueuelib.simulator.readers.source import Source, whole_text
from kueuelib.simulator.work import COMPLETED, FAILED, GPU, KILLED, Job, PodShape, pods

_ENDS = {"Pass": COMPLETED, "Killed": KILLED, "Failed": FAILED}


def read(path: Path, faults: Faults, source: Source) -> Iterator[Job]:
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
    yield from each(path, entries, lambda entry: _job(entry, faults), faults, source)


def _job(entry: Any, faults: Faults) -> Job | None:
    if not isinstance(entry, dict):
        raise BadValue("", "is not a JSON object")
    attempts = entry.get("attempts") or []
    if not isinstance(attempts, list) or not all(isinstance(one, dict) for one in attempts):
        raise BadValue("attempts", "is not a list of objects")
    ran = [
        _seconds(one) for one in attempts if _known(one, "start_time") and _known(one, "end_time")
    ]
    shape = _shape(attempts)
    if not ran:
        faults.drop("no attempt that ended")
        return None
    if shape is None:
        faults.drop("number of GPUs unknown")
        return None
    vc = str(entry.get("vc") or "")
    return Job(
        name=str(entry.get("jobid") or ""),
        arrival=moment(entry.get("submitted_time"), "submitted_time"),
        run_seconds=sum(ran),
        pod_sets=(shape,),
        queue=vc,
        end=_ENDS.get(str(entry.get("status")), FAILED),
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


def _shape(attempts: list[Any]) -> PodShape | None:
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
