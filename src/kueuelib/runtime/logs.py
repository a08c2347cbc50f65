"""How a program of ours logs: structlog, one event per line, as JSON or for people.

A library only asks for loggers; a program calls `configure` once. Values bound with
`structlog.contextvars`, such as the reconcile id, appear in every line of the same task.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import MutableMapping
from typing import Any, TextIO

import orjson
import structlog

LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}
FORMATS = ("console", "json")


def get_logger(component: str, **bound: Any) -> Any:
    """A logger whose lines carry `component=...` and the values given.

    It looks at the configuration when it is first used, not when it is made.
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
