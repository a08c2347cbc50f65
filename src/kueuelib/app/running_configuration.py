"""The configuration of the manager that runs, for commands that are not given its file.

The leader writes what differs from the defaults and changes decisions or jobs on its Lease, which
every authenticated user may read. The ConfigMap of an installation is for those who may read it,
and for managers that write nothing on their Lease, like the Go manager.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import attrs
import orjson

from kueuelib.api.kinds import CONFIG_MAPS, LEASES
from kueuelib.api.meta import Obj, ObjectKey, Resource, annotations_of, key_of
from kueuelib.app.configuration import (
    CONFIG_FILE,
    CONFIG_MAP,
    Configuration,
    load_configuration,
    parse_configuration,
)
from kueuelib.app.decision_settings import engine_settings
from kueuelib.app.lease_notes import DECISIVE, PUBLISHED, is_abandoned
from kueuelib.errors import ApiError, ConfigError
from kueuelib.runtime.client import Client
from kueuelib.runtime.clock import SYSTEM_CLOCK
from kueuelib.runtime.reading import read
from kueuelib.runtime.yaml_files import documents

LEADERLESS: Final = "no manager leads (see kueuelib doctor)"


@attrs.frozen
class Running:
    """The configuration that a command assumes.

    Attributes:
        configuration: the manager's, as far as it is known.
        notes: for people: where it was found, or why the default one is assumed.
        leaderless: for people: that no manager decides, if that was seen.
    """

    configuration: Configuration
    notes: tuple[str, ...] = ()
    leaderless: tuple[str, ...] = ()


def given_configuration(file: Path | None) -> Configuration | None:
    """The configuration in the file that the user named; None if none was.

    Raises:
        ConfigError: it is not valid.
    """
    return None if file is None else load_configuration(file)


async def running_configuration(client: Client, given: Configuration | None = None) -> Running:
    """The configuration that the user gave; without one, that of the cluster's manager.

    Args:
        client: whose cluster.
        given: read from the user's file.

    Raises:
        TransportError: the server did not answer.
    """
    if given is not None:
        return Running(given)
    stored = await _mounted(client)
    lease = stored.configuration.lease
    name = f"Lease {lease.namespace}/{lease.name}"
    answer = await _answered(client, LEASES, lease)
    stored_lease = None if isinstance(answer, ApiError) else answer
    if stored_lease is not None and is_abandoned(stored_lease, SYSTEM_CLOCK.now()):
        stored = attrs.evolve(stored, leaderless=(LEADERLESS,))
    content = _of_holder(stored_lease)
    if content is None:
        return stored
    try:
        told = _parsed(content, name)
    except ConfigError as error:
        return attrs.evolve(stored, notes=(_unknown(error),))
    values = {key: getattr(told, key) for key in DECISIVE}
    configuration = attrs.evolve(stored.configuration, **values)
    return attrs.evolve(stored, configuration=configuration, notes=_assumed(configuration, name))


async def _mounted(client: Client) -> Running:
    """What the ConfigMap of an installation says."""
    default = Configuration()
    key = ObjectKey(default.manager_namespace, CONFIG_MAP)
    answer = await _answered(client, CONFIG_MAPS, key)
    if isinstance(answer, ApiError):
        return Running(default, (_unknown(answer),))
    try:
        configuration = None if answer is None else mounted_configuration(answer)
    except ConfigError as error:
        return Running(default, (_unknown(error),))
    if configuration is None:
        return Running(default)
    return Running(configuration, _assumed(configuration, _name(key)))


def mounted_configuration(stored: Obj) -> Configuration | None:
    """The configuration in the ConfigMap of an installation; None if it holds none.

    Args:
        stored: the ConfigMap.

    Raises:
        ConfigError: it is not valid, or this version does not know it.
    """
    text = (stored.get("data") or {}).get(CONFIG_FILE)
    if text is None:
        return None
    name = _name(key_of(stored))
    contents = documents(text, name)
    return _parsed(contents[0] if len(contents) == 1 else None, name)


def _name(config_map: ObjectKey) -> str:
    return f"ConfigMap {config_map}"


async def _answered(client: Client, resource: Resource, key: ObjectKey) -> Obj | ApiError | None:
    try:
        return await read(client, resource, key)
    except ApiError as error:
        return error


def _of_holder(lease: Obj | None) -> Any:
    """What the present or last leader has published; None if that was another manager."""
    text = annotations_of(lease or {}).get(PUBLISHED)
    if not text:
        return None
    try:
        note = orjson.loads(text)
    except orjson.JSONDecodeError:
        return text  # parsing it says what is wrong
    holder = ((lease or {}).get("spec") or {}).get("holderIdentity") or ""
    if not isinstance(note, dict):
        return text
    return note.get("configuration") if holder in ("", note.get("holder")) else None


def _parsed(content: Any, source: str) -> Configuration:
    """The configuration without its preemption policy, which may not be installed here.

    Raises:
        ConfigError: it is not valid, or this version does not know it.
    """
    if isinstance(content, dict) and isinstance(content.get("preemption"), Mapping):
        block = {
            key: value
            for key, value in content["preemption"].items()
            if key not in ("policy", "parameters")
        }
        content = {**content, "preemption": block}
    return parse_configuration(content, source)


def _assumed(configuration: Configuration, source: str) -> tuple[str, ...]:
    """A note if the configuration decides otherwise than the default one."""
    others = configuration.manage_jobs_without_queue_name
    if engine_settings(configuration) == engine_settings(Configuration()) and not others:
        return ()
    return (f"decided by the manager's configuration, from {source}",)


def _unknown(error: Exception) -> str:
    why = " ".join(str(error).split())
    return (
        f"the manager's configuration is not known ({why}): the default one is assumed; name "
        "the manager's with --config"
    )
