"""A changed configuration file: what is taken over, what is held back, what is refused."""

from __future__ import annotations

import asyncio
import os
import signal
import types
import typing
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import attrs
import yaml
from tests.unit.docs.configuration_table import AT_ONCE

from kueuelib.app.configuration import Configuration
from kueuelib.app.configuration_reading import load_configuration, parse_configuration
from kueuelib.app.decoding import Duration, camel, is_live, with_live_keys
from kueuelib.app.reloading import ConfigurationFile, changed_keys
from kueuelib.runtime.telemetry import Telemetry

HEAD = {"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration"}
OTHERS = {Duration: "7s", bool: False, int: 7, Mapping: {"matchLabels": {"a": "b"}}}
"""By type, a value that is the default of no key that takes effect at once."""


def _live_values(cls: type) -> dict[str, Any]:
    """Other values of the keys that take effect at once."""
    found: dict[str, Any] = {}
    for field in attrs.fields(attrs.resolve_types(cls)):
        name, hint = camel(field.name), field.type
        if typing.get_origin(hint) is types.UnionType:
            hint = next(one for one in typing.get_args(hint) if one is not types.NoneType)
        if is_live(field):
            found[name] = OTHERS[typing.get_origin(hint) or hint]
        elif isinstance(hint, type) and attrs.has(hint) and (inner := _live_values(hint)):
            found[name] = inner
    return found


LIVE_VALUES = _live_values(Configuration)
WAITING = {"waitForPodsReady": {"timeout": "5m"}}


def parse(**content: Any) -> Configuration:
    return parse_configuration({**HEAD, **content}, "c.yaml")


def test_live_keys_are_taken_over_and_no_others() -> None:
    old, new = parse(**WAITING), parse(**LIVE_VALUES, namespace="other")
    assert set(changed_keys(old, new)) == {*AT_ONCE, "namespace"}
    merged = with_live_keys(old, new)
    assert set(changed_keys(old, merged)) == AT_ONCE
    assert changed_keys(merged, new) == ("namespace",)


def test_a_block_that_comes_or_goes_is_not_taken_over() -> None:
    off, on = parse(), parse(**WAITING)
    for old, new in ((off, on), (on, off)):
        assert with_live_keys(old, new) == old
        assert "waitForPodsReady.timeout" in changed_keys(old, new)


class Following:
    """A file that is followed, and what was taken over."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "c.yaml"
        self.taken: list[Configuration] = []
        self.announced: list[tuple[str, ...]] = []
        self.telemetry = Telemetry()
        self.write(**WAITING)
        started = load_configuration(self.path)
        self.part = ConfigurationFile(
            self.path,
            started,
            self.taken.append,
            self.telemetry,
            announce=self.announced.append,
            period=600.0,
        )

    def write(self, **content: Any) -> None:
        self.path.write_text(yaml.safe_dump({**HEAD, **content}))

    def lines(self) -> list[str]:
        text = self.telemetry.render().decode().splitlines()
        return [one for one in text if one.startswith("kueuelib_configuration")]

    async def until(self, reached: Callable[[], bool]) -> None:
        os.kill(os.getpid(), signal.SIGHUP)
        async with asyncio.timeout(60):
            while not reached():
                await asyncio.sleep(0.01)


async def test_sighup_takes_over_holds_back_and_refuses(tmp_path: Path) -> None:
    world = Following(tmp_path)
    started = asyncio.Event()
    task = asyncio.create_task(world.part.run(started.set))
    try:
        await asyncio.wait_for(started.wait(), 60)
        assert world.lines() == []
        world.write(**LIVE_VALUES)
        await world.until(lambda: len(world.taken) == 1)
        assert world.taken[0].object_retention_policies.workloads.after_finished == 7

        world.path.write_text("apiVersion: nonsense")
        refused = 'kueuelib_configuration_reloads_total{result="refused"} 1.0'
        await world.until(lambda: refused in world.lines())
        world.write(**LIVE_VALUES, manageJobsWithoutQueueName=True)
        key = "manageJobsWithoutQueueName"
        told = f'kueuelib_configuration_restart_needed{{key="{key}"}} 1.0'
        await world.until(lambda: told in world.lines())
        world.write(**LIVE_VALUES)
        await world.until(lambda: told not in world.lines())
        assert world.announced == [(key,), ()]
        assert len(world.taken) == 1
    finally:
        task.cancel()
        await asyncio.wait([task])
