"""Continues from a time of a recording with the same jobs under other rules, as input of
`simulate`.

The run time of a job is known if it ended in the recording. For other jobs, the median of similar
jobs in the same queue is used, or the time that they have run at least, or that they may run at
most.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs
import orjson

from kueuelib.api import conditions, names
from kueuelib.api.codec import encode
from kueuelib.api.kueue import Workload, WorkloadStatus
from kueuelib.api.meta import Obj, format_time
from kueuelib.cli.simulate.command import SimulateOptions, run
from kueuelib.errors import ConfigError
from kueuelib.recording.history import Lives, WorkloadHistory
from kueuelib.scheduler.explain.world import World
from kueuelib.simulator.estimates import RunTimes
from kueuelib.simulator.readers.manifests import ARRIVAL_SECONDS, RUN_SECONDS
from kueuelib.simulator.snapshot import objects_of

SNAPSHOT, ARRIVALS, CONFIGURATION = "recorded.json", "recorded-later.json", "configuration.json"
"""The files in the folder of the results: the objects at the time, later arrivals, the settings."""


def simulate(
    world: World,
    lives: Lives,
    at: float,
    configuration: Obj,
    policies: Sequence[Path],
    output: Path,
) -> int:
    """Continues from a time with simulations, once without and once with each policy.

    Args:
        world: the objects at that time.
        lives: what happened to the Workloads later.
        at: the time, in seconds since the epoch.
        configuration: the manager's, as recorded.
        policies: files of objects that replace recorded ones.
        output: the folder for the results.

    Returns:
        The exit code of `simulate`.

    Raises:
        ConfigError: nothing is left to simulate, or an argument or a file is not valid.
    """
    guess = _Guess(lives, at)
    snapshot = [
        _timed(encode(each), at, guess.seconds(lives.by_uid[each.uid]))
        for each in world.workloads.values()
        if each.spec.active and not _withdrawn(lives.by_uid[each.uid])
    ]
    later = [
        _timed(encode(_fresh(past.first)), past.seen, guess.seconds(past))
        for past in lives.by_uid.values()
        if past.seen > at and past.first.spec.active and not _withdrawn(past)
    ]
    if not snapshot and not later:
        fix = "give an earlier --until"
        raise ConfigError("--with", f"there is no job at {format_time(at)} or later", fix)
    try:
        output.mkdir(parents=True, exist_ok=True)
        files = [
            _write(output / SNAPSHOT, [*objects_of(world), *snapshot]),
            *([_write(output / ARRIVALS, later)] if later else []),
        ]
        config = _write(output / CONFIGURATION, configuration) if configuration else None
    except OSError as error:
        problem = error.strerror or str(error)
        raise ConfigError(str(output), problem, "give a folder that can be written") from error
    withdrawn = sum(map(_withdrawn, lives.by_uid.values()))
    if withdrawn:
        sys.stderr.write(f"Left out: {withdrawn} that were deleted while they waited\n")
    if guess.guessed:
        sys.stderr.write(f"Run times assumed: {guess.guessed} of jobs that did not end\n")
    return run(
        SimulateOptions(
            traces=files,
            format="yaml",
            cluster=None,
            kubeconfig=None,
            server_timeout=0.0,
            policies=policies,
            config=config,
            output=output,
            queue_by=None,
            strict=False,
            scale=1.0,
            checks=(),
            stop_seconds=0.0,
            ready_seconds=0.0,
            sample_seconds=60.0,
            explain=(),
        )
    )


class _Guess:
    """Run times of jobs, and how often one had to be guessed."""

    def __init__(self, lives: Lives, at: float) -> None:
        self.guessed = 0
        self._times = RunTimes()
        self._end = max((past.ended or past.seen for past in lives.by_uid.values()), default=at)
        for past in lives.by_uid.values():
            if past.ran is not None:
                self._times.add(past.workload, past.ran)

    def seconds(self, past: WorkloadHistory) -> float:
        if past.ran is not None:
            return past.ran
        self.guessed += 1
        since = conditions.since(past.workload.status.conditions, names.ADMITTED)
        least = 0.0 if since is None else max(0.0, self._end - since)
        return max(least, self._times.middle(past.workload) or 0.0)


def _withdrawn(past: WorkloadHistory) -> bool:
    return past.ended is not None and past.ran is None


def _fresh(workload: Workload) -> Workload:
    """The Workload as it was created: without its status, and without its job, which is not
    recorded.
    """
    meta = workload.metadata
    labels = {name: value for name, value in meta.labels.items() if name != names.JOB_UID_LABEL}
    meta = attrs.evolve(meta, labels=labels)
    return attrs.evolve(workload, metadata=meta, status=WorkloadStatus())


def _timed(raw: Obj, arrival: float, seconds: float) -> Obj:
    notes = {ARRIVAL_SECONDS: repr(arrival), RUN_SECONDS: repr(seconds)}
    return {**raw, "metadata": {**raw["metadata"], "annotations": notes}}


def _write(path: Path, content: Any) -> Path:
    path.write_bytes(orjson.dumps(content))
    return path
