"""Parses paths."""

from __future__ import annotations

import attrs

from kueuelib.embedded.schema.formats import BAD_ESCAPE


def is_odd(text: str) -> bool:
    """Whether a part of a URL cannot be decoded."""
    return BAD_ESCAPE.search(text) is not None


def readable(query: str) -> str:
    """The pairs of a query that Go can read; it drops all others."""
    return "&".join(each for each in query.split("&") if ";" not in each and not is_odd(each))


@attrs.frozen
class Route:
    """A path below `/api/v1` or `/apis/<group>/<version>`.

    Attributes:
        group: empty for the core group.
        version: for example `v1`.
        namespace: empty for all namespaces and for cluster-scoped kinds.
        plural: empty for the version's own discovery document.
        name: empty for the collection.
        subresource: empty for the object itself.
        rest: the path after the subresource.
        watched: whether the path has the old form of a watch, `/api/v1/watch/...`.
    """

    group: str
    version: str
    namespace: str = ""
    plural: str = ""
    name: str = ""
    subresource: str = ""
    rest: tuple[str, ...] = ()
    watched: bool = False


_OF_NAMESPACES = frozenset(("status", "finalize"))


def parse(path: str) -> Route | None:
    """The route; None if the path is not below a group version."""
    parts = [part for part in path.split("/") if part]
    if len(parts) >= 2 and parts[0] == "api":
        group, version, rest = "", parts[1], parts[2:]
    elif len(parts) >= 3 and parts[0] == "apis":
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return None
    watched = rest[:1] == ["watch"] and len(rest) > 1
    if watched:
        rest = rest[1:]
    namespace = ""
    if (
        len(rest) >= 3
        and rest[0] == "namespaces"
        and not (len(rest) == 3 and rest[2] in _OF_NAMESPACES and not group)
    ):
        namespace, rest = rest[1], rest[2:]
    plural, name, subresource = [*rest[:3], "", "", ""][:3]
    return Route(group, version, namespace, plural, name, subresource, tuple(rest[3:]), watched)
