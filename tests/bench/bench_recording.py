"""What a recording costs the manager: the processor time of its lines by that of everything."""

from __future__ import annotations

import time
import zlib
from pathlib import Path

from figures import cpu_seconds, pid_of, show
from load import client_of, create_all, create_queues, job, observed

from kueuelib.api.kinds import JOBS
from kueuelib.recording.reader import Notes, read
from kueuelib.recording.rerun import Rerun
from kueuelib.recording.writer import LEVEL, RecordedEngine, Tape
from kueuelib.scheduler.engine import Engine
from kueuelib.testing.processes import LocalCluster, Processes

COUNT = 500
REPEATS = 5


async def test_the_lines_of_an_admission(tmp_path: Path) -> None:
    """The same engine is told the same twice, with a tape and without; the difference is the cost.

    Telling the recorded facts to an engine costs the same in either case, so that what differs is
    the encoding, the hashes and the compression.
    """
    file = tmp_path / "recording"
    with Processes(tmp_path) as processes:
        cluster = LocalCluster(processes, options=("--record", str(file)))
        cluster.start()
        async with client_of(cluster.kubeconfig) as client:
            await create_queues(client, COUNT)
            pid = pid_of(processes, "manager")
            before = cpu_seconds(pid)

            async def act() -> None:
                await create_all(client, JOBS, [job(f"job-{n:04d}") for n in range(COUNT)])

            await observed(client, act, lambda times: len(times.admitted) >= COUNT, 110)
            used = (cpu_seconds(pid) - before) / COUNT
        processes.stop("manager")
    lines = list(read(file, Notes()))
    with_tape = min(_seconds(lines, taped=True) for _ in range(REPEATS)) / COUNT
    without = min(_seconds(lines, taped=False) for _ in range(REPEATS)) / COUNT
    cost = with_tape - without
    show(
        f"recording: {COUNT} Jobs at once",
        [
            ("processor time per Job, manager that records", f"{used * 1000:.2f} ms"),
            ("of that, the recording", f"{cost * 1e6:.0f} us, {cost / used:.1%}"),
            ("lines per Job", f"{len(lines) / COUNT:.1f}"),
            ("bytes per Job in the file", f"{file.stat().st_size / COUNT:.0f}"),
        ],
    )
    assert len(lines) > COUNT


def _seconds(lines: list, *, taped: bool) -> float:
    """The processor time of telling an engine everything that was recorded."""
    tape = Tape()
    engine: Engine | None = None

    def made(_: object) -> Engine:
        nonlocal engine
        engine = RecordedEngine(tape=tape) if taped else Engine()
        return engine

    again = Rerun(made)
    stream = zlib.compressobj(LEVEL, wbits=31)
    start = time.process_time()
    for number, line in enumerate(lines):
        assert again.take(line) is None
        if number % 500 == 0 and taped:
            stream.compress(b"\n".join(tape.take()))
            stream.flush(zlib.Z_SYNC_FLUSH)
    return time.process_time() - start
