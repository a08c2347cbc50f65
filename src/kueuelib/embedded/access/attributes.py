"""The attributes of a request, and the decision about it."""

from __future__ import annotations

from typing import Protocol

import attrs

from kueuelib.embedded.admission.plugin import UserInfo
from kueuelib.errors import Forbidden

MASTERS = "system:masters"
AUTHENTICATED = "system:authenticated"
UNAUTHENTICATED = "system:unauthenticated"


@attrs.frozen
class Attributes:
    """The attributes of a request.

    Attributes:
        verb: `get`, `list`, `create`, ...; for paths, the HTTP method in lower case.
        group: the API group; empty for the core group.
        resource: the plural; empty for a path.
        subresource: for example `status`; empty for the object itself.
        namespace: empty for cluster-scoped objects, and for all namespaces.
        name: of the object; empty for collections.
        path: the URL path of a request without a resource.
        version: the API version.
    """

    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""
    version: str = ""

    @property
    def full_resource(self) -> str:
        """`pods`, `pods/status`."""
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource


@attrs.frozen
class Decision:
    """Whether a request is allowed.

    Attributes:
        allowed: whether it is allowed.
        reason: why, for people; may be empty.
    """

    allowed: bool
    reason: str = ""


@attrs.frozen
class AccessRule:
    """A set of allowed requests, for resources or for paths."""

    verbs: tuple[str, ...]
    groups: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()


EVERYTHING = (AccessRule(("*",), ("*",), ("*",)), AccessRule(("*",), paths=("*",)))


class Authorizer(Protocol):
    """Decides."""

    def authorize(self, caller: UserInfo, wish: Attributes) -> Decision:
        """Whether a caller may do something."""

    def rules(self, caller: UserInfo, namespace: str) -> tuple[AccessRule, ...]:
        """Everything that a caller may do in a namespace, including cluster-wide grants."""


class AlwaysAllow:
    """Every client with credentials may do everything."""

    def authorize(self, caller: UserInfo, wish: Attributes) -> Decision:
        """Yes."""
        del caller, wish
        return Decision(allowed=True)

    def rules(self, caller: UserInfo, namespace: str) -> tuple[AccessRule, ...]:
        """Everything."""
        del caller, namespace
        return EVERYTHING


def refusal(caller: UserInfo, wish: Attributes, reason: str = "") -> Forbidden:
    """The answer to a caller without permission."""
    tail = f": {reason}" if reason else ""
    if not wish.resource:
        return Forbidden(
            f'forbidden: User "{caller.user}" cannot {wish.verb} path "{wish.path}"{tail}',
            details={},
        )
    where = f'in the namespace "{wish.namespace}"' if wish.namespace else "at the cluster scope"
    plural = f"{wish.resource}.{wish.group}" if wish.group else wish.resource
    about = f'{plural} "{wish.name}"' if wish.name else plural
    details = {"name": wish.name, "group": wish.group, "kind": wish.resource}
    return Forbidden(
        f'{about} is forbidden: User "{caller.user}" cannot {wish.verb} resource '
        f'"{wish.full_resource}" in API group "{wish.group}" {where}{tail}',
        details={key: value for key, value in details.items() if value},
    )
