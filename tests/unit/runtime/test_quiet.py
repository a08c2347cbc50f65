"""Our lines about problems are told once a minute."""

from __future__ import annotations

import asyncio
import io

import orjson
import pytest
import structlog

from kueuelib.runtime import logs
from kueuelib.runtime.logs import LEFT_OUT, OncePerMinute, get_logger, run_of

REFUSED = "https://10.0.0.1/api/v1/namespaces/ns/events: connection refused"


class Written:
    """The processor in use, with a clock by hand."""

    def __init__(self, period: float = 60.0) -> None:
        self.lines: list[dict[str, object]] = []
        self.now = 0.0
        self.sparing = OncePerMinute(self._keep, period, lambda: self.now, lambda: self.now)
        structlog.configure(
            processors=[structlog.contextvars.merge_contextvars, self.sparing, self._take]
        )

    def _keep(self, line) -> None:
        self.lines.append(dict(line))

    def _take(self, _, __, line):
        self._keep(line)
        raise structlog.DropEvent

    @property
    def counts(self) -> list[tuple[object, object]]:
        return [(line["event"], line.get(LEFT_OUT, 0)) for line in self.lines]


@pytest.fixture
def written() -> Written:
    return Written()


def fail(times: int, error: str = REFUSED) -> None:
    log = get_logger("controller.jobs")
    for number in range(times):
        with run_of("jobs", f"ns/job-{number}"):
            log.error("reconciliation failed", error=error, kind="NotConnected")


def test_a_flood_is_two_lines_with_an_exact_count(written) -> None:
    fail(500)
    get_logger("events").warning("an event waits for the server", error=REFUSED)
    fail(247)
    written.sparing.finish()
    failed, waits = "reconciliation failed", "an event waits for the server"
    assert written.counts == [(failed, 0), (waits, 0), (failed, 745)]
    assert [line["key"] for line in written.lines if "key" in line] == ["ns/job-0", "ns/job-246"]
    written.sparing.finish()
    assert len(written.lines) == 3


def test_a_line_that_is_told_later_says_when_it_happened(written) -> None:
    for written.now in (0.0, 2.0, 5.0, 31.5):
        fail(1)
    written.now = 60.0  # the server is back since half a minute
    written.sparing.finish()
    first, later = written.lines
    assert "last" not in first
    told = {name: later[name] for name in (LEFT_OUT, "first", "last")}
    assert told == {
        LEFT_OUT: 2,
        "first": "1970-01-01T00:00:02.000000Z",
        "last": "1970-01-01T00:00:31.500000Z",
    }
    written.now = 70.0
    fail(1)
    written.sparing.finish()
    assert written.lines[2]["last"] == "1970-01-01T00:01:10.000000Z"
    assert written.lines[2].keys().isdisjoint((LEFT_OUT, "first"))


def test_a_minute_later_it_is_told_again(written) -> None:
    fail(3)
    written.now = 60.0
    fail(2)
    assert written.counts == [("reconciliation failed", 0), ("reconciliation failed", 2)]


def test_what_is_no_problem_and_what_others_log_is_told_each_time(written) -> None:
    for _ in range(3):
        get_logger("leader").info("leader changed")
        structlog.get_logger().error("of the program", error="x")
        get_logger("events").info("an event is refused", error="x")
    assert [event for event, _ in written.counts] == [
        "leader changed",
        "of the program",
        "an event is refused",
        "leader changed",
        "of the program",
        "leader changed",
        "of the program",
    ]


async def test_a_timer_tells_what_was_left_out_when_nothing_else_happens() -> None:
    written = Written(period=0.05)
    fail(20)
    assert len(written.lines) == 1
    written.now = 0.05
    async with asyncio.timeout(20):
        while len(written.lines) < 2:
            await asyncio.sleep(0.005)
    assert written.counts[1] == ("reconciliation failed", 18)
    fail(2)
    written.now = 0.1
    async with asyncio.timeout(20):
        while len(written.lines) < 3:
            await asyncio.sleep(0.005)
    assert written.counts[2] == ("reconciliation failed", 1)


def test_a_line_that_is_told_later_has_its_traceback(written) -> None:
    for number in (17, 18):
        try:
            {}.pop(number)
        except KeyError:
            get_logger("visibility").exception("a request failed")
    written.sparing.finish()
    assert [str(line["exc_info"][1]) for line in written.lines] == ["17", "18"]


@pytest.mark.parametrize(("level", "lines"), [("info", 1), ("debug", 30)])
def test_configured_logs_are_spared_unless_the_level_is_debug(level, lines, monkeypatch) -> None:
    at_the_end, stream = [], io.StringIO()
    monkeypatch.setattr(logs.atexit, "register", at_the_end.append)
    logs.configure("json", level, stream)
    fail(30)
    assert len(stream.getvalue().splitlines()) == lines
    for function in at_the_end:
        function()
    told = [orjson.loads(line) for line in stream.getvalue().splitlines()]
    assert sum(1 + line.get(LEFT_OUT, 0) for line in told) == 30
    assert told[-1]["key"] == "ns/job-29"
    assert {line["level"] for line in told} == {"error"}
    assert all("timestamp" in line for line in told)
