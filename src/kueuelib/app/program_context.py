"""A program that is being put together, before any of its parts runs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import attrs

from kueuelib.app.configuration import Configuration
from kueuelib.runtime.client import Client
from kueuelib.runtime.manager import Manager
from kueuelib.runtime.telemetry import Telemetry


@attrs.frozen
class ProgramContext:
    """What every part of a program is made from.

    Attributes:
        manager: runs the parts.
        configuration: the user's configuration.
        client: reaches the API server.
        telemetry: where the parts report.
        version: of the queueing API on the wire.
        source: what to call the configuration in errors.
    """

    manager: Manager
    configuration: Configuration
    client: Client
    telemetry: Telemetry
    version: str
    source: str


Assemble = Callable[[ProgramContext], Awaitable[None]]
"""Adds the parts of a program to its manager; nothing is started yet."""
