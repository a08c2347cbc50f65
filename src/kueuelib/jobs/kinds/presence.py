"""Decides whether the API server serves a kind of jobs in a version that its integration reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import attrs

from kueuelib.api.kinds import CRDS
from kueuelib.api.meta import Obj, ObjectKey, Resource, find_condition
from kueuelib.errors import Forbidden, NotFound
from kueuelib.jobs.contract.integration import Integration
from kueuelib.jobs.reconcile.self_wired import SelfWired
from kueuelib.runtime.client import Client


@attrs.frozen
class Served:
    """The kind is served.

    Attributes:
        version: the first of the integration's versions that is served.
    """

    version: str


@attrs.frozen
class Gone:
    """The kind does not exist, so there are no objects."""


@attrs.frozen
class Unfit:
    """The kind exists, but not as the integration expects it.

    Attributes:
        why: a clause for people.
    """

    why: str


@attrs.frozen
class Unclear:
    """The kind is not served at this moment; its objects may exist.

    Attributes:
        why: a clause for people.
    """

    why: str


Presence = Served | Gone | Unfit | Unclear


MISMATCHES = "mismatches"
"""The key under which `trimmed` stores what does not fit the CRD."""


def is_lasting(integration: Integration) -> bool:
    """Whether every API server always serves the kind, like `batch/v1`.

    The groups of all CRDs have a dot. An integration with its own controllers also counts as
    lasting.
    """
    return "." not in integration.resource.group or isinstance(integration, SelfWired)


def definition_name(resource: Resource) -> str:
    """The name of the CRD of a kind."""
    return f"{resource.plural}.{resource.group}"


async def look(client: Client, integration: Integration) -> Presence:
    """Ask the API server; one call is enough as long as all is well.

    Raises:
        ApiError: the server cannot answer.
        TransportError: no answer.
    """
    resource = integration.resource
    offered: dict[str, Resource] = {}

    async def ask(versions: Iterable[str]) -> None:
        for version in versions:
            served = await client.find_resource(f"{resource.group}/{version}", resource.kind)
            if served is not None:
                offered[version] = served

    for version in integration.versions:
        await ask([version])
        if _fits(resource, offered.get(version)):
            return Served(version)
    others = await client.served_versions(resource.group)
    await ask(version for version in others if version not in integration.versions)
    if offered:
        return judged(integration, offered, None)
    try:
        crd = await client.get(CRDS, ObjectKey("", definition_name(resource)))
    except NotFound:
        return Gone()
    except Forbidden:
        crd = None
    return judged(integration, offered, crd)


def judged(
    integration: Integration, offered: Mapping[str, Resource], crd: Mapping[str, Any] | None
) -> Presence:
    """The presence of a kind, judged from the answers of the API server.

    Args:
        integration: the kind.
        offered: the versions in which the server serves a kind of this group and name.
        crd: its definition; None: it may not be read.
    """
    resource = integration.resource
    for version in integration.versions:
        if _fits(resource, offered.get(version)):
            return Served(version)
    for version in integration.versions:
        served = offered.get(version)
        if served is not None and not served.namespaced:
            return Unfit("its objects are in no namespace")
        if served is not None:
            return Unfit(
                f"its plural is {served.plural}, and the integration's is {resource.plural}"
            )
    if offered:
        return _other_versions(integration, offered)
    if crd is None:
        return Unclear("the API server does not serve it")
    return _judged_by_definition(integration, crd)


def _judged_by_definition(integration: Integration, crd: Mapping[str, Any]) -> Presence:
    accepted = find_condition((crd.get("status") or {}).get("conditions"), "NamesAccepted")
    if accepted.get("status") == "False":
        return Unfit(f"the names of its definition are not accepted: {accepted.get('message')}")
    served = [each["name"] for each in crd["spec"].get("versions") or () if each.get("served")]
    if not {*served} & {*integration.versions}:
        return _other_versions(integration, served)
    return Unclear("it is defined, but not served yet")


def _other_versions(integration: Integration, served: Iterable[str]) -> Unfit:
    versions, read = ", ".join(sorted(served)), " or ".join(integration.versions)
    if not versions:
        return Unfit(f"no version of it is served; the integration reads {read}")
    return Unfit(f"it is served in {versions}; the integration reads {read}")


def _fits(resource: Resource, served: Resource | None) -> bool:
    if served is None or not served.namespaced:
        return False
    return served.plural == resource.plural


def trimmed(integration: Integration, crd: Obj) -> Obj:
    """The parts of a CRD that are kept to detect changes, and what does not fit them."""
    from kueuelib.jobs.declared.crd_mismatches import mismatches

    return {
        MISMATCHES: mismatches(integration, crd),
        "apiVersion": crd.get("apiVersion"),
        "kind": crd.get("kind"),
        "metadata": {
            field: crd["metadata"].get(field) for field in ("name", "uid", "resourceVersion")
        },
    }
