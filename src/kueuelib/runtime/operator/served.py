"""Whether the API server has the kinds that an operator names; asked once, before it runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches

import attrs

from kueuelib.api.meta import Resource
from kueuelib.errors import ApiError, ConfigError, TransportError
from kueuelib.runtime import discovery
from kueuelib.runtime.client import Client
from kueuelib.runtime.clock import SYSTEM_CLOCK, Clock
from kueuelib.runtime.logs import get_logger
from kueuelib.runtime.operator.declaration import Operator

PATIENCE = 5.0
"""Seconds that an API server may need until it serves a CRD that was just applied."""
PAUSE = 0.25
"""Seconds between two looks."""
_INSTALL = "run `kueuelib manifests FILE | kubectl apply -f -`"


@attrs.frozen
class Unserved:
    """A kind that the API server does not serve.

    Attributes:
        error: names the kind, and the nearest one that is served.
        misnamed: whether the kind is served under another plural: waiting cannot help.
        absent: whether nothing of its group and version is served.
    """

    error: ConfigError
    misnamed: bool = False
    absent: bool = False


def unserved(
    resource: Resource, served: Mapping[str, str], api_versions: Iterable[str], *, own: bool
) -> Unserved | None:
    """What is wrong with a kind; None if it is served.

    Args:
        resource: the kind.
        served: the kinds of its group and version, by plural.
        api_versions: all that the API server serves; read only when `served` is empty.
        own: whether the manifests of the operator define it.
    """
    if resource.plural in served:
        return None
    problem = f"is not served in {resource.api_version}"
    if own:
        return Unserved(ConfigError(resource.plural, problem, _INSTALL), absent=not served)
    if served:
        same = [plural for plural, kind in served.items() if kind.lower() == resource.kind.lower()]
        near = same or get_close_matches(resource.plural, served, 1)
        fix = f"did you mean {near[0]}?" if near else "install what serves it"
        return Unserved(ConfigError(resource.plural, problem, fix), misnamed=bool(same))
    near = get_close_matches(resource.api_version, api_versions, 1, cutoff=0.8)
    fix = "install what serves it" + (f"; or did you mean {near[0]}?" if near else "")
    return Unserved(ConfigError(resource.plural, problem, fix), absent=True)


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
