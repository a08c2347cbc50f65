"""How the library logs: structlog, one event per line.

Lines go where the program wants them: through structlog where it called `structlog.configure`, and
through the standard library's loggers `kueuelib.<component>` where it did not. A program that has
no wish of its own calls `configure`: JSON, or lines for people.

A recurring problem is logged once a minute, with a count, unless the level is `debug` or the
program has processors of its own: see `kueuelib.runtime.logs`.

Values bound with `structlog.contextvars` appear in every line of the same task. `run_of` binds the
run of a controller: its name, the key, and an id.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import sys
import threading
import time
import uuid
from collections.abc import Callable, MutableMapping, Sequence
from functools import cached_property, partial
from typing import Any, Final, TextIO

import orjson
import structlog
from structlog.typing import FilteringBoundLogger

from kueuelib.api.meta import format_micro_time
from kueuelib.machinery.recurrence import PERIOD, Repetition, cause_of

# ---- keeps the log short: a recurring problem is logged once a minute, with a count --------------

FULL: Final = "too many connections: those idle longest are closed"
REPEATED: Final = frozenset(
    ("SSL connection is closed", "socket.send() raised exception.", "SSL handshake failed", FULL)
)
LEFT_OUT: Final = "left_out"
"""The value of a line that says how many lines like it were left out before it."""
FIRST: Final = "first"
LAST: Final = "last"
"""The values of a line that is logged later: when the first and the last one like it happened."""
_PROBLEMS: Final = frozenset(("warning", "error", "critical"))
_OF_ONE_LINE: Final = frozenset(("key", "reconcile", "resource", "exc_info", "stack_info"))
"""The values that say what a line is about, and not why. A kind that is alone in its trouble, such
as a missing right, is named by the error itself.
"""

Event = MutableMapping[str, Any]


class LogRateLimiter(logging.Filter):
    """Passes messages about closed connections at most once a minute, with the number left out.

    Args:
        clock: in seconds, never going back.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._repetition = Repetition[None]()

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a record is logged; its message may get the number."""
        if record.msg not in REPEATED:
            return True
        left_out = self._repetition.note(record.msg, None, self._clock())
        if left_out:
            record.msg = f"{record.msg} (and {left_out:,} times before)"
        return left_out is not None


class OncePerMinute:
    """A processor of structlog: our lines about problems are logged once a minute per cause.

    These are warnings, errors, and all lines with an `error`. Two of them have the same cause if
    they differ only in names and numbers. The first one is logged at once. A minute later follows
    the latest of the lines that were left out, with their number, and when it happened: by then the
    problem may be over. `finish` logs what is left.

    Args:
        log: writes a line that was left out.
        period: seconds.
        clock: in seconds, never going back.
        wall: in seconds since the epoch.
    """

    def __init__(
        self,
        log: Callable[[Event], None],
        period: float = PERIOD,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._log = log
        self._clock = clock
        self._wall = wall
        self._repetition = Repetition[Event](period)
        self._lock = threading.Lock()
        self._waits: asyncio.AbstractEventLoop | None = None  # has a timer

    def __call__(self, _: Any, level: str, event: Event) -> Event:
        """The line, or `structlog.DropEvent`."""
        if "component" not in event or (level not in _PROBLEMS and "error" not in event):
            return event
        if event.get("exc_info") is True:
            event["exc_info"] = sys.exc_info()  # a line that is logged later has no other chance
        later = {**event, LAST: format_micro_time(self._wall())}
        with self._lock:
            left_out = self._repetition.note(cause_of(event, _OF_ONE_LINE), later, self._clock())
        if left_out is None:
            self._wait()
            raise structlog.DropEvent
        return {**event, LEFT_OUT: left_out} if left_out else event

    def finish(self) -> None:
        """Log the last line of each cause that was left out."""
        with self._lock:
            due = self._repetition.due()
        self._log_all(due)

    def _wait(self) -> None:
        """Set a timer of the running loop; without one, the next line or the end has the number."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return
        if self._waits is not loop:
            self._waits = loop
            loop.call_later(max(self._repetition.next_due - self._clock(), 0.0), self._tick)

    def _tick(self) -> None:
        self._waits = None
        with self._lock:
            due, more = self._repetition.due(self._clock()), self._repetition.next_due
        self._log_all(due)
        if more < float("inf"):
            self._wait()

    def _log_all(self, due: Sequence[tuple[Event, Event, int]]) -> None:
        for first, last, left_out in due:
            before = {LEFT_OUT: left_out, FIRST: first[LAST]} if left_out else {}
            self._log({**last, **before})


# --------------------------------------------------------------------------------------------------

LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}
FORMATS = ("console", "json")


class _LazyId:
    """An id that is made only when a line is logged."""

    @cached_property
    def _id(self) -> str:
        return uuid.uuid4().hex[:12]

    def __repr__(self) -> str:
        return self._id


class run_of:  # noqa: N801 - used like a function
    """Lines that are logged inside carry the controller's name, the key, and an id of the run.

    Args:
        controller: its name.
        key: what it works on.
    """

    __slots__ = ("_said", "_tokens")

    def __init__(self, controller: str, key: object) -> None:
        self._said = {"controller": controller, "reconcile": _LazyId(), "key": str(key)}

    def __enter__(self) -> None:
        self._tokens = structlog.contextvars.bind_contextvars(**self._said)

    def __exit__(self, *_: object) -> None:
        structlog.contextvars.reset_contextvars(**self._tokens)


def get_logger(component: str, **bound: Any) -> FilteringBoundLogger:
    """A logger of structlog whose lines carry `component=...` and the values given.

    It asks how lines are written for each of them, so that it may be made before the program
    configures structlog or logging.
    """
    spared: list[OncePerMinute] = []  # of this logger: a test sees no lines left out for another
    fitting: Any = partial(_fitting, component, spared)
    made: FilteringBoundLogger = structlog.wrap_logger(
        None, wrapper_class=fitting, component=component, **bound
    )
    return made


def _fitting(
    component: str, spared: list[OncePerMinute], wrapped: Any, processors: Any, context: Any
) -> Any:
    """The logger that the program's configuration asks for."""
    if structlog.is_configured():
        kind = structlog.get_config()["wrapper_class"]
        return kind(wrapped, processors=processors, context=context)
    wrapped = logging.getLogger(f"kueuelib.{component}")
    steps = _PLAIN
    if not wrapped.isEnabledFor(logging.DEBUG):
        if not spared:
            spared.append(OncePerMinute(partial(_log_later, wrapped)))
        steps = [*_PLAIN[:-1], spared[0], _PLAIN[-1]]
    return structlog.stdlib.BoundLogger(wrapped, processors=steps, context=context)


def _log_later(logger: logging.Logger, event: Event) -> None:
    """Log a line that was left out before."""
    level = LEVELS[event["level"]]
    args, keywords = _to_record(None, "", {**event})
    logger.log(level, *args, **keywords)


def _to_record(_: Any, __: str, event: MutableMapping[str, Any]) -> Any:
    """One line of text for a record of the standard library; the traceback stays an exception."""
    keywords = {
        "exc_info": event.pop("exc_info", None),
        "stack_info": event.pop("stack_info", None),
    }
    del event["component"], event["level"]  # the logger and the record have them
    words = [str(event.pop("event", "")), *(f"{key}={value}" for key, value in event.items())]
    return ("%s", " ".join(words)), {**keywords, "stacklevel": 4}


_PLAIN: Sequence[Any] = (
    structlog.stdlib.filter_by_level,
    structlog.contextvars.merge_contextvars,
    structlog.processors.add_log_level,
    _to_record,
)


def configure(format: str = "console", level: str = "info", stream: TextIO | None = None) -> None:
    """Set up logging for the whole process, the standard library's included.

    Args:
        format: `console` or `json`.
        level: `debug`, `info`, `warning` or `error`.
        stream: where lines go; stderr when None.

    Raises:
        ValueError: no such format or level.
    """
    if format not in FORMATS or level not in LEVELS:
        raise ValueError(f"log format {format!r} or level {level!r} does not exist")
    target = sys.stderr if stream is None else stream
    first: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
    ]
    last: list[Any] = [
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
    ]
    if format == "json":
        last.append(structlog.processors.format_exc_info)
        render: Any = structlog.processors.JSONRenderer(serializer=_dumps)
    else:
        render = structlog.dev.ConsoleRenderer(
            colors=target.isatty(), exception_formatter=structlog.dev.plain_traceback
        )
    sparing = [_sparing([*last, render], target)] if LEVELS[level] > logging.DEBUG else []
    structlog.configure(
        processors=[*first, *sparing, *last, render],
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
        logger_factory=structlog.WriteLoggerFactory(target),
        cache_logger_on_first_use=False,
    )
    _redirect_standard_library([*first, *last], render, target, LEVELS[level])


def _sparing(rest: Sequence[Any], target: TextIO) -> OncePerMinute:
    """The processor that leaves lines out; those it logs later take the rest of the way."""

    def log(event: Event) -> None:
        line: Any = event
        for processor in rest:
            line = processor(None, event["level"], line)
        print(line, file=target, flush=True)

    sparing = OncePerMinute(log)
    atexit.register(sparing.finish)
    return sparing


def configure_unless_done(level: str = "info") -> None:
    """`configure`, for people, unless the program has configured structlog or logging itself.

    Args:
        level: see `configure`.
    """
    if not structlog.is_configured() and not logging.getLogger().handlers:
        configure(level=level)


def _redirect_standard_library(shared: list[Any], render: Any, target: TextIO, level: int) -> None:
    handler = logging.StreamHandler(target)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.ExtraAdder(), _logger_name, *shared],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, render],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)


def _logger_name(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    record = event.get("_record")
    if record is not None:
        event["component"] = record.name
    return event


def _dumps(event: Any, default: Any = None, **_: Any) -> str:
    return orjson.dumps(event, default=default or str).decode()
