"""The configuration in recordings, and a program that only records."""

from __future__ import annotations

from pathlib import Path

import attrs
import yaml

from kueuelib.api.meta import Obj
from kueuelib.app.configuration import OFF, Configuration
from kueuelib.app.configuration_reading import parse_configuration
from kueuelib.app.decision_settings import engine_settings
from kueuelib.app.program_context import ProgramContext
from kueuelib.app.wiring import engine_for
from kueuelib.controllers.assembly import feed_from
from kueuelib.controllers.feed import Feed
from kueuelib.recording.reader import Begin
from kueuelib.recording.writer import RecordingOptions
from kueuelib.runtime.cache import Cache
from kueuelib.runtime.manager import Group
from kueuelib.scheduler.settings import Settings

_KEPT = (
    *("apiVersion", "kind", "waitForPodsReady", "fairSharing", "admissionFairSharing"),
    *("preemption", "borrowing", "resources", "featureGates", "objectRetentionPolicies"),
)
"""The keys that decisions and times depend on."""


def recorded_configuration(path: Path | None) -> Obj:
    """The part of a loaded configuration file that a recording keeps."""
    content = yaml.safe_load(path.read_text()) if path is not None else {}
    return {key: content[key] for key in _KEPT if key in content}


def recorded_settings(begin: Begin) -> Settings:
    """The settings by which a recording was decided.

    Raises:
        ConfigError: they cannot be used here, for example because a policy is not installed.
    """
    content, source = begin.configuration, str(begin.where)
    configuration = parse_configuration(content, source) if content else Configuration()
    return engine_settings(configuration, source)


def recorder_configuration(configuration: Configuration) -> Configuration:
    """The configuration of a program that only records: without servers and election."""
    return attrs.evolve(
        configuration,
        health=attrs.evolve(configuration.health, health_probe_bind_address=OFF),
        metrics=attrs.evolve(configuration.metrics, bind_address=OFF),
        leader_election=attrs.evolve(configuration.leader_election, leader_elect=False),
    )


async def assemble_recorder(program: ProgramContext, *, recording: RecordingOptions) -> None:
    """Adds the parts that follow a cluster and record the facts that a manager would receive."""
    manager, client = program.manager, program.client
    cache = Cache(client, telemetry=program.telemetry)
    settings = engine_settings(program.configuration, program.source)
    engine = engine_for(manager, settings, recording)
    feed_from(manager, cache, client, Feed(engine, _Silent()), program.version)
    manager.add(Group.CACHES, cache, "caches")


class _Silent:
    """Writes no events to a cluster that is only read; the feed logs the same."""

    def event(self, *_: object, **__: object) -> None:
        """Do nothing."""
