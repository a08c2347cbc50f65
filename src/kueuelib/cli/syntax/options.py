"""Options of several commands, and types of their values."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    TextType = click.ParamType[str]
else:
    TextType = click.ParamType  # generic since click 8.4

F = TypeVar("F", bound=Callable[..., Any])

FILE = click.Path(path_type=Path)


class Number(click.FloatRange):
    """A number in a range; "nan" and "inf" are refused."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """The number, or a mistake in the command line."""
        number: float = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number.", param, ctx)
        return number


def setting(
    name: str, type: type[str] | click.ParamType[Any], default: object, help: str
) -> Callable[[F], F]:
    """An option whose default is shown in the help."""
    return click.option(name, type=type, default=default, show_default=True, help=help)


def port(help: str) -> Callable[[F], F]:
    """The port of a server."""
    return setting("--port", click.IntRange(0, 65535), 0, help)


def kubeconfig(command: F) -> F:
    """The kubeconfig of the cluster."""
    return click.option(
        "--kubeconfig",
        type=FILE,
        help="Kubeconfig of the cluster; default: $KUBECONFIG, ~/.kube/config, then in-cluster.",
    )(command)


def _server_timeout(seconds: float) -> Callable[[F], F]:
    text = "Seconds to wait for a server that does not answer yet."
    return setting("--server-timeout", Number(min=0), seconds, text)


server_timeout = _server_timeout(60.0)
"""How long to wait for the API server, for programs that start together with it."""
answer_timeout = _server_timeout(10.0)
"""The same for interactive commands."""


def logging(command: F) -> F:
    """The options for logs."""
    level = setting(
        "--log-level",
        click.Choice(["debug", "info", "warning", "error"]),
        "info",
        "The lowest level that is logged.",
    )
    form = setting(
        "--log-format",
        click.Choice(["console", "json"]),
        "console",
        "Lines for people or for machines.",
    )
    return form(level(command))


def recorded(command: F) -> F:
    """The options for recordings."""
    size = setting(
        "--record-size",
        Number(min=0, min_open=True),
        64.0,
        "Size in MiB at which the next file of the recording begins.",
    )
    files = setting(
        "--record-files", click.IntRange(1), 8, "How many files are kept; the oldest are removed."
    )
    names = click.option(
        "--hash-names",
        is_flag=True,
        help="Replace the names of objects by others in the same order.",
    )
    return size(files(names(command)))
