"""Takes over a changed configuration file without a restart, as far as that is safe.

A file that cannot be read or is not valid changes nothing. The keys of a valid one that are `live`
where they are declared take effect; the others keep their old values until the next start, and are
reported.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import anyio

from kueuelib.app.configuration import Configuration
from kueuelib.app.configuration_reading import load_configuration
from kueuelib.app.configuration_text import every_key
from kueuelib.app.decoding import with_live_keys
from kueuelib.errors import ConfigError
from kueuelib.runtime.logs import get_logger

if TYPE_CHECKING:
    from kueuelib.runtime.telemetry import Telemetry

PERIOD: Final = 10.0
"""Seconds between two reads of the file."""
RESTART_NEEDED: Final = "kueuelib.dev/restart-needed"
"""The annotation of the Lease that names the keys whose new values need a restart."""


def changed_keys(old: Configuration, new: Configuration) -> tuple[str, ...]:
    """The keys that differ, sorted. A block that is added or removed counts with all of its keys.

    Lists and selectors count as one key.
    """
    one, other = dict(_leaves(every_key(old))), dict(_leaves(every_key(new)))
    return tuple(sorted(key for key in one.keys() | other.keys() if one.get(key) != other.get(key)))


def _leaves(content: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in content.items():
        here = f"{path}.{key}" if path else key
        if isinstance(value, Mapping) and not here.endswith("Selector"):
            yield from _leaves(value, here)
        else:
            yield here, value


class ConfigurationFile:
    """Follows the configuration file; a part of a `Manager`.

    It reads the file every ten seconds, and at SIGHUP.

    Args:
        path: the file.
        configuration: the manager's configuration at its start.
        take: called with the configuration that applies from now on.
        telemetry: where it reports.
        announce: called with the keys whose new values take effect only at the next start.
        period: seconds between two reads.
    """

    def __init__(
        self,
        path: Path,
        configuration: Configuration,
        take: Callable[[Configuration], None],
        telemetry: Telemetry,
        *,
        announce: Callable[[tuple[str, ...]], None] = lambda _: None,
        period: float = PERIOD,
    ) -> None:
        self._path = path
        self._announce = announce
        self._current = configuration
        self._take = take
        self._period = period
        self._problem = ""
        self._held_back: tuple[str, ...] = ()
        self._poked = asyncio.Event()
        self._log = get_logger("configuration")
        self._reloads = telemetry.counter(
            "kueuelib_configuration_reloads_total",
            "Changed configuration files that were applied or refused.",
            ("result",),
        )
        self._restart = telemetry.gauge(
            "kueuelib_configuration_restart_needed",
            "1 for each key whose new value takes effect only at the next start.",
            ("key",),
        )

    async def run(self, ready: Callable[[], None]) -> None:
        """Follow the file until cancelled."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGHUP, self._poked.set)
        try:
            await self._look()
            ready()
            while True:
                with anyio.move_on_after(self._period):
                    await self._poked.wait()
                self._poked.clear()
                await self._look()
        finally:
            loop.remove_signal_handler(signal.SIGHUP)

    async def _look(self) -> None:
        try:
            loaded = await asyncio.to_thread(load_configuration, self._path)
        except ConfigError as error:
            if str(error) != self._problem:
                self._problem = str(error)
                self._reloads.labels("refused").inc()
                self._log.warning("the old configuration stays", error=self._problem)
            return
        self._problem = ""
        wanted = with_live_keys(self._current, loaded)
        live = changed_keys(self._current, wanted)
        if live:
            self._take(wanted)
            self._current = wanted
            self._reloads.labels("taken").inc()
            self._log.info("configuration reloaded", keys=live)
        self._hold_back(changed_keys(self._current, loaded))

    def _hold_back(self, keys: tuple[str, ...]) -> None:
        if keys == self._held_back:
            return
        for key in self._held_back:
            self._restart.remove(key)
        for key in keys:
            self._restart.labels(key).set(1)
        self._held_back = keys
        self._announce(keys)
        if keys:
            self._log.warning("a restart is needed for new values", keys=keys)
