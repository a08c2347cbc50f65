"""Admission checks in the bundled manager: built-in ones and those of installed packages."""

from __future__ import annotations

from kueuelib.api.kinds import ADMISSION_CHECKS
from kueuelib.checks import setup
from kueuelib.checks.plugins import installed
from kueuelib.checks.provisioning import provisioning_check
from kueuelib.checks.silence import SilenceWatch
from kueuelib.runtime.cache import Cache
from kueuelib.runtime.client import Client
from kueuelib.runtime.events import EventRecorder
from kueuelib.runtime.manager import Group, Manager
from kueuelib.runtime.telemetry import Telemetry


def add_checks(
    manager: Manager,
    cache: Cache,
    client: Client,
    recorder: EventRecorder,
    version: str,
    telemetry: Telemetry,
    namespace: str,
) -> None:
    """Adds the built-in check, those of installed packages, and the watch for silent processes.

    Args:
        manager: runs them.
        cache: shares informers.
        client: writes.
        recorder: for events.
        version: of the queueing API on the wire.
        telemetry: where controllers report.
        namespace: holds the Leases of checks that run in their own processes.

    Raises:
        ConfigError: a package offers something that cannot be loaded or is not a check.
    """
    checks = (provisioning_check(version=version), *installed())
    setup(manager, cache, client, recorder, checks, version=version, telemetry=telemetry)
    informer = cache.informer(ADMISSION_CHECKS.at(version))
    names = [check.controller_name for check in checks]
    watch = SilenceWatch(client, informer, recorder, namespace, names)
    manager.add(Group.ELECTED, watch, "silence of checks")
