"""How a program of ours logs: structlog, one event per line, as JSON or for people.

A library only asks for loggers; a program calls `configure` once. Values bound with
`structlog.contextvars` appear in every line of the same task, and so does the run of a controller
that the line belongs to: its name, the key, and an id.
"""

from __future__ import annotations

import logging
import sys
import uuid
from collections.abc import MutableMapping
from contextvars import ContextVar
from functools import cached_property
from typing import Any, TextIO

import orjson
import structlog

LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}
FORMATS = ("console", "json")


class run_of:  # noqa: N801 - used like a function
    """Lines that are logged inside carry the controller's name, the key, and an id of the run.

    The id is made only when a line is logged.

    Args:
        controller: its name.
        key: what it works on.
    """

    def __init__(self, controller: str, key: object) -> None:
        self._controller = controller
        self._key = key

    def __enter__(self) -> None:
        self._token = _RUN.set(self)

    def __exit__(self, *_: object) -> None:
        _RUN.reset(self._token)

    @cached_property
    def fields(self) -> dict[str, str]:
        """What every line of the run carries."""
        reconcile = uuid.uuid4().hex[:12]
        return {"controller": self._controller, "reconcile": reconcile, "key": str(self._key)}


_RUN: ContextVar[run_of | None] = ContextVar("run of a controller", default=None)


def merge_run(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """The processor of structlog that adds what `run_of` knows; `configure` installs it."""
    run = _RUN.get()
    if run is not None:
        for name, value in run.fields.items():
            event.setdefault(name, value)
    return event


def get_logger(component: str, **bound: Any) -> Any:
    """A logger whose lines carry `component=...` and the values given.

    It reads the configuration when it is first used, not when it is made.
    """
    return structlog.get_logger(component=component, **bound)


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
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        merge_run,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
    ]
    if format == "json":
        shared.append(structlog.processors.format_exc_info)
        render: Any = structlog.processors.JSONRenderer(serializer=_dumps)
    else:
        render = structlog.dev.ConsoleRenderer(
            colors=target.isatty(), exception_formatter=structlog.dev.plain_traceback
        )
    structlog.configure(
        processors=[*shared, render],
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
        logger_factory=structlog.WriteLoggerFactory(target),
        cache_logger_on_first_use=False,
    )
    _redirect_standard_library(shared, render, target, LEVELS[level])


def spare_locals() -> None:
    """Leave local variables out of tracebacks, and name the run of a controller, as `configure`.

    For tests, which do not call `configure`; it changes nothing where structlog is configured.
    """
    if structlog.is_configured():
        return
    present = structlog.get_config()["processors"]
    shown = structlog.dev.ConsoleRenderer(
        colors=sys.stdout.isatty(), exception_formatter=structlog.dev.plain_traceback
    )
    structlog.configure(processors=[*present[:-1], merge_run, shown])


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
    root.setLevel(max(level, logging.WARNING) if level > logging.DEBUG else logging.INFO)


def _logger_name(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    record = event.get("_record")
    if record is not None:
        event["component"] = record.name
    return event


def _dumps(event: Any, default: Any = None, **_: Any) -> str:
    return orjson.dumps(event, default=default or str).decode()
