"""Options of several commands, and types of their values."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

FILE = click.Path(path_type=Path)


class Number(click.FloatRange):
    """A number in a range; "nan" and "inf" are none."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """The number, or a mistake in the command line."""
        found: float = super().convert(value, param, ctx)
        if not math.isfinite(found):
            self.fail(f"{value!r} is not a finite number.", param, ctx)
        return found


def kubeconfig(command: F) -> F:
    """Which cluster."""
    return click.option(
        "--kubeconfig",
        type=FILE,
        help="Kubeconfig of the cluster; default: $KUBECONFIG, ~/.kube/config, then in-cluster.",
    )(command)


def server_timeout(command: F) -> F:
    """How long to wait for it."""
    return click.option(
        "--server-timeout",
        type=Number(min=0),
        default=60.0,
        show_default=True,
        help="Seconds to wait for a server that does not answer yet.",
    )(command)


def logging(command: F) -> F:
    """What is logged, and how."""
    level = click.option(
        "--log-level",
        type=click.Choice(["debug", "info", "warning", "error"]),
        default="info",
        show_default=True,
        help="What is worth a line.",
    )
    form = click.option(
        "--log-format",
        type=click.Choice(["console", "json"]),
        default="console",
        show_default=True,
        help="Lines for people or for machines.",
    )
    return form(level(command))


def recorded(command: F) -> F:
    """What a recording looks like."""
    size = click.option(
        "--record-size",
        type=Number(min=0, min_open=True),
        default=64.0,
        show_default=True,
        help="MiB after which another file of the recording is begun.",
    )
    files = click.option(
        "--record-files",
        type=click.IntRange(1),
        default=8,
        show_default=True,
        help="How many files are kept; the oldest are removed.",
    )
    names = click.option(
        "--hash-names",
        is_flag=True,
        help="Record other names instead of those of objects, in the same order.",
    )
    return size(files(names(command)))
