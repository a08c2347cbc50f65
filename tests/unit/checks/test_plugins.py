"""The check of an installed package decides in the bundled manager."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kueuelib.api.kinds import MANAGER_NAMESPACE, V1BETA2
from kueuelib.app.configuration import Configuration
from kueuelib.app.program_context import ProgramContext
from kueuelib.app.wiring import add_checks
from kueuelib.checks.definition import GROUP
from kueuelib.runtime.cache import Cache
from kueuelib.runtime.events import EventRecorder
from kueuelib.runtime.manager import Group, Manager
from kueuelib.runtime.telemetry import Telemetry

if TYPE_CHECKING:
    from .conftest import Checks

SOURCE = """
from kueuelib.checks import Ready, check

@check("example.com/packed")
async def packed(workload, parameters):
    return Ready("from a package")
"""


async def test_the_check_of_an_installed_package_decides_in_the_manager(
    checks: Checks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "packed_check.py").write_text(SOURCE)
    meta = tmp_path / "packed_check-1.0.dist-info"
    meta.mkdir()
    (meta / "METADATA").write_text("Metadata-Version: 2.1\nName: packed-check\nVersion: 1.0\n")
    entry = f"[{GROUP}]\nexample.com/packed = packed_check:packed\n"
    (meta / "entry_points.txt").write_text(entry)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "packed_check", raising=False)
    manager, cache = Manager(stop_deadline=5.0), Cache(checks.client)
    recorder = EventRecorder(checks.client, "test")
    manager.add(Group.EVENTS, recorder)
    manager.add(Group.CACHES, cache)
    configuration = Configuration(namespace=MANAGER_NAMESPACE)
    program = ProgramContext(manager, configuration, checks.client, Telemetry(), V1BETA2, "test")
    add_checks(program, cache, checks.client, recorder)
    async with checks.world.running():
        task = asyncio.create_task(manager.run())
        try:
            await checks.admission_check("check", "example.com/packed")
            await checks.queues("check")
            await checks.world.workload("wl")
            assert (await checks.state("wl", "Ready"))["message"] == "from a package"
            await checks.world.is_("wl", "Admitted")
        finally:
            manager.stop()
            await task
    sys.modules.pop("packed_check", None)
