"""Whether the API server has the kinds that an operator names; asked once, before it runs."""

from __future__ import annotations

from collections.abc import Mapping

from kueuelib.api.meta import Resource
from kueuelib.errors import ApiError, TransportError
from kueuelib.runtime import discovery
from kueuelib.runtime.client import Client
from kueuelib.runtime.clock import SYSTEM_CLOCK, Clock
from kueuelib.runtime.discovery import Unserved, unserved
from kueuelib.runtime.logs import get_logger
from kueuelib.runtime.operator.declaration import Operator

PATIENCE = 5.0
"""Seconds that an API server may need until it serves a CRD that was just applied."""
PAUSE = 0.25
"""Seconds between two looks."""


async def check_served(
    operator: Operator, client: Client, patience: float, clock: Clock = SYSTEM_CLOCK
) -> None:
    """Refuses to start without the kinds that an operator reconciles, owns, watches or writes.

    A kind that is only written may belong to a group that is not installed: that is a warning.
    Kinds of other clusters are not looked at.

    Args:
        operator: the declaration.
        client: of the API server.
        patience: seconds to wait for a kind that may still come.
        clock: how to wait.

    Raises:
        ConfigError: a kind is not served.
    """
    log = get_logger("operator")
    deadline, told = clock.monotonic() + patience, False
    needed = _followed(operator)
    while True:
        missing = await _look(operator, client)
        fatal = [each for kind, each in missing.items() if kind in needed or not each.absent]
        sure = [each for each in fatal if each.misnamed]
        if not fatal:
            break
        if sure or clock.monotonic() >= deadline:
            raise (sure or fatal)[0].error
        if not told:
            log.warning("waiting for a kind", why=str(fatal[0].error), seconds=patience)
            told = True
        await clock.sleep(PAUSE)
    for each in missing.values():
        log.warning("cannot be written", why=str(each.error))


def _followed(operator: Operator) -> dict[Resource, None]:
    """The kinds of this cluster that are read, in the order of the declaration."""
    followed = [
        kind
        for each in operator.reconciled
        for kind in (each.resource, *each.owns, *each.watches)
        if isinstance(kind, Resource)
    ]
    return dict.fromkeys(followed)


async def _look(operator: Operator, client: Client) -> dict[Resource, Unserved]:
    """What is not served; a group that does not answer is left to the caches, which report it."""
    own = {each.resource.group_kind for each in operator.definitions}
    written = [kind for each in operator.reconciled for kind in each.writes]
    served: dict[str, Mapping[str, str]] = {}
    missing = {}
    for kind in dict.fromkeys([*_followed(operator), *written]):
        version = kind.api_version
        try:
            if version not in served:
                served[version] = await discovery.served_plurals(client.request, version)
            others = () if served[version] else await discovery.api_versions(client.request)
        except (ApiError, TransportError):
            continue
        if wrong := unserved(kind, served[version], others, own=kind.group_kind in own):
            missing[kind] = wrong
    return missing
