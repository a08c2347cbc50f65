"""A program starts over after a lost lease, however its server behaves meanwhile."""

from __future__ import annotations

import anyio
import pytest

from kueuelib.errors import ConfigError, Forbidden, LeadershipLost, Unavailable
from kueuelib.runtime.manager import ProgramRun, run_until_stopped

REFUSED = ConfigError("Lease", "may not be read", "grant get")


class Program:
    """Lives that end as told."""

    def __init__(self, *ends: Exception | None) -> None:
        self.ends = list(ends)
        self.waits: list[float] = []

    async def run(self) -> None:
        """The manager's part of one life."""
        end = self.ends.pop(0)
        if end is not None:
            raise end

    async def once(self, life: ProgramRun, patience: float) -> None:
        self.waits.append(patience)
        if self.ends and not isinstance(self.ends[0], LeadershipLost | None | RuntimeError):
            raise self.ends.pop(0)  # during the start
        await life.run(self)  # type: ignore[arg-type]


@pytest.fixture
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr(anyio, "sleep", sleep)
    return slept


@pytest.mark.parametrize("error", [REFUSED, Forbidden("no role yet"), Unavailable("wait")])
async def test_a_later_life_tries_to_start_until_the_server_lets_it(
    no_pauses: list[float], error: Exception
) -> None:
    program = Program(LeadershipLost("away"), error, error, None)
    await run_until_stopped(ProgramRun(), program.once, 60)
    assert program.waits == [60, *[float("inf")] * 3]
    assert 0.5 <= no_pauses[0] < no_pauses[1] <= 10 * 1.2


async def test_the_first_start_fails_at_once(no_pauses: list[float]) -> None:
    with pytest.raises(ConfigError):
        await run_until_stopped(ProgramRun(), Program(REFUSED).once, 60)
    assert not no_pauses


async def test_a_manager_that_fails_ends_the_program() -> None:
    class Broken(Program):
        async def once(self, life: ProgramRun, patience: float) -> None:
            self.waits.append(patience)
            await life.run(self)  # type: ignore[arg-type]

    program = Broken(LeadershipLost("away"), REFUSED)
    with pytest.raises(ConfigError):
        await run_until_stopped(ProgramRun(), program.once, 60)
    assert len(program.waits) == 2


async def test_a_signal_ends_a_pause() -> None:
    life, program = ProgramRun(), Program(LeadershipLost("away"), *[REFUSED] * 50)
    async with anyio.create_task_group() as group:
        group.start_soon(run_until_stopped, life, program.once, 60)
        with anyio.fail_after(5):
            while len(program.waits) < 2:
                await anyio.sleep(0.01)
            life.stop()
    assert len(program.waits) == 2
