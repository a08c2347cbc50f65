"""What the verbs of a `Client` send and receive: parameters, accepted forms, pages."""

from __future__ import annotations

import enum
from typing import Any, Self

import attrs

from kueuelib.api.meta import Obj, Resource
from kueuelib.machinery.reflector_reading import PARTIAL

JSON = "application/json"
_AS = "application/json;as={};g=meta.k8s.io;v=v1"
METADATA = f"{_AS.format(PARTIAL)},{JSON}"
"""Accept objects reduced to their metadata; whole ones from a server that cannot do that."""
METADATA_LIST = f"{_AS.format(f'{PARTIAL}List')},{JSON}"
"""The same for lists."""


Params = list[tuple[str, str]]


class PatchType(enum.StrEnum):
    """The four kinds of patches, by content type."""

    MERGE = "application/merge-patch+json"
    JSON = "application/json-patch+json"
    APPLY = "application/apply-patch+yaml"
    STRATEGIC = "application/strategic-merge-patch+json"


@attrs.frozen
class ObjectList:
    """One page of a list.

    Attributes:
        items: the objects, each with `apiVersion` and `kind`.
        resource_version: of the list as a whole.
        continue_token: asks for the next page; empty on the last one.
        remaining: how many objects are left, when the server says so.
    """

    items: tuple[Obj, ...]
    resource_version: str = ""
    continue_token: str = ""
    remaining: int | None = None

    @classmethod
    def read(cls, body: Obj, resource: Resource) -> Self:
        """A page out of the answer to a list; its items are changed.

        Items whose kind the server left out get it. Metadata gets the kind of its object.
        """
        meta = body.get("metadata") or {}
        items = body.get("items") or ()
        kind = str(body.get("kind", "")).removesuffix("List") or resource.kind
        if kind == PARTIAL:
            for item in items:
                item |= {"apiVersion": resource.api_version, "kind": resource.kind}
        for item in items:
            item.setdefault("apiVersion", body.get("apiVersion", resource.api_version))
            item.setdefault("kind", kind)
        return cls(
            items=tuple(items),
            resource_version=meta.get("resourceVersion") or "",
            continue_token=meta.get("continue") or "",
            remaining=meta.get("remainingItemCount"),
        )


def params_of(**values: str) -> Params:
    """Query parameters, without empty ones."""
    return [(name, value) for name, value in values.items() if value]


def present_only(**values: Any) -> dict[str, Any]:
    """The values that are not None."""
    return {name: value for name, value in values.items() if value is not None}


def delete_options(
    preconditions: dict[str, Any],
    propagation: str | None,
    grace_period: int | None,
    *,
    dry_run: bool = False,
) -> Obj:
    """The raw `DeleteOptions` of a request; with them, a server ignores those in the URL."""
    return {
        "kind": "DeleteOptions",
        "apiVersion": "v1",
        **present_only(
            preconditions=preconditions or None,
            propagationPolicy=propagation,
            gracePeriodSeconds=grace_period,
            dryRun=["All"] if dry_run else None,
        ),
    }
