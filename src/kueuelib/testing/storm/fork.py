"""Runs many jobs from one world, which is booted once; every run happens in a copy of the process.

A copy shares the memory of the booted world until it changes it, so a run does not pay for
importing, compiling schemas and filling caches.
"""

from __future__ import annotations

import contextlib
import gc
import os
import pickle
import select
import signal
import sys
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, NoReturn, TypeVar

import attrs

from kueuelib.errors import KueuelibError

J = TypeVar("J")
S = TypeVar("S")
T = TypeVar("T")
_PIECE = 1 << 16
_GRACE = 10.0
"""Seconds that a copy gets to end its own copies once its time is up."""
_FREEZE = gc.freeze  # a world replaces what it finds in the module


class CopyFailed(KueuelibError):
    """A copy of the process failed: a traceback, or how it ended."""


@attrs.frozen
class Outcome(Generic[J]):
    """The result of one run.

    Attributes:
        job: the job.
        value: the result of the run.
        error: a traceback, or how the process ended; empty after success.
        cpu: seconds of processor time that the run took.
    """

    job: J
    value: Any
    error: str
    cpu: float


@attrs.define
class _Child(Generic[J]):
    job: J
    pid: int
    data: bytearray = attrs.field(factory=bytearray)


def run_all(
    state: S,
    jobs: Iterable[J],
    play: Callable[[S, J], Any],
    *,
    workers: int = 2,
    limit: float = 120.0,
) -> Iterator[Outcome[J]]:
    """Do every job in a copy of this process; yield outcomes in the order they end.

    Args:
        state: the initial state of every run, for example a booted world.
        jobs: the jobs; taken one by one.
        play: does a job; its result is pickled.
        workers: the number of concurrent copies.
        limit: real seconds after which a copy is killed.
    """
    _FREEZE()
    waiting = iter(jobs)
    running: dict[int, _Child[J]] = {}
    try:
        while True:
            while len(running) < workers:
                for job in waiting:
                    pipe, child = _start(state, job, play, limit)
                    running[pipe] = child
                    break
                else:
                    break
            if not running:
                return
            for pipe in select.select(list(running), [], [])[0]:
                piece = os.read(pipe, _PIECE)
                if piece:
                    running[pipe].data += piece
                    continue
                os.close(pipe)
                yield _ended(running.pop(pipe), limit)
    finally:
        for pipe, child in running.items():
            os.close(pipe)
            with contextlib.suppress(ProcessLookupError):
                os.kill(child.pid, signal.SIGKILL)
            os.waitpid(child.pid, 0)


def apart(work: Callable[[], T], *, limit: float) -> T:
    """Do some work in a copy of this process, and return its result; this process does not change.

    Args:
        work: What to do; its result is pickled.
        limit: Real seconds after which it is killed, together with its own copies.

    Raises:
        CopyFailed: It raised, took too long, or its process died.
    """

    def timed(_: None, job: Callable[[], T]) -> T:
        signal.signal(signal.SIGALRM, _give_up)
        signal.setitimer(signal.ITIMER_REAL, limit)
        return job()

    pipe, child = _start(None, work, timed, limit + _GRACE)
    try:
        while piece := os.read(pipe, _PIECE):
            child.data += piece
    except BaseException:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child.pid, signal.SIGKILL)
        os.waitpid(child.pid, 0)
        raise
    finally:
        os.close(pipe)
    outcome = _ended(child, limit)
    if outcome.error:
        raise CopyFailed(outcome.error)
    value: T = outcome.value
    return value


def _give_up(*_: object) -> NoReturn:
    raise TimeoutError("took too long")


def _start(state: S, job: J, play: Callable[[S, J], Any], limit: float) -> tuple[int, _Child[J]]:
    reading, writing = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    with warnings.catch_warnings():
        # Threads of a test runner stay behind; a copy needs none of their locks.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid:
        os.close(writing)
    else:
        os.close(reading)
        _play(state, job, play, limit, writing)
    return reading, _Child(job, pid)


def _play(state: S, job: J, play: Callable[[S, J], Any], limit: float, writing: int) -> NoReturn:
    """Do a job and end this process in any case, without the clean-up of a normal end."""
    code = 1
    try:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, limit)
        try:
            answer = pickle.dumps((play(state, job), ""))
        except BaseException:  # noqa: BLE001 - is passed to the parent
            answer = pickle.dumps((None, traceback.format_exc()))
        with open(writing, "wb") as pipe:
            pipe.write(answer)
        sys.stdout.flush()
        sys.stderr.flush()
        code = 0
    finally:
        os._exit(code)


def _ended(child: _Child[J], limit: float) -> Outcome[J]:
    _, status, usage = os.wait4(child.pid, 0)
    cpu = usage.ru_utime + usage.ru_stime
    code = os.waitstatus_to_exitcode(status)
    if code == -signal.SIGALRM:
        return Outcome(child.job, None, f"took longer than {limit:g} s", cpu)
    if code:
        return Outcome(child.job, None, f"the process ended with {code}", cpu)
    value, error = pickle.loads(child.data)  # noqa: S301 - from our own copy
    return Outcome(child.job, value, error, cpu)
