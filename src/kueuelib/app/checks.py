"""Admission checks in the bundled manager: built-in ones and those of installed packages."""

from __future__ import annotations

from kueuelib.checks import setup
from kueuelib.checks.plugins import installed
from kueuelib.checks.provisioning import provisioning_check
from kueuelib.runtime.cache import Cache
from kueuelib.runtime.client import Client
from kueuelib.runtime.events import EventRecorder
from kueuelib.runtime.manager import Manager
from kueuelib.runtime.telemetry import Telemetry


def add_checks(
    manager: Manager,
    cache: Cache,
    client: Client,
    recorder: EventRecorder,
    version: str,
    telemetry: Telemetry,
) -> None:
    """Adds the built-in check and every one that an installed package offers.

    Raises:
        ConfigError: a package offers something that cannot be loaded or is no check.
    """
    checks = (provisioning_check(version=version), *installed())
    setup(manager, cache, client, recorder, checks, version=version, telemetry=telemetry)
