"""`authorizer`: expressions check what the user of a request may do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import attrs

from kueuelib.embedded.access.attributes import AUTHENTICATED, Attributes, Authorizer, Decision
from kueuelib.embedded.access.tokens import ACCOUNTS_GROUP
from kueuelib.embedded.admission.plugin import UserInfo
from kueuelib.embedded.cel.errors import EvalError
from kueuelib.embedded.cel.types import Library, Type

_PACKAGE: Final = "kubernetes.authorization"
_PATH: Final = f"{_PACKAGE}.PathCheck"
_GROUP: Final = f"{_PACKAGE}.GroupCheck"
_RESOURCE: Final = f"{_PACKAGE}.ResourceCheck"
_DECISION: Final = f"{_PACKAGE}.Decision"
AUTHORIZER: Final = Type(f"{_PACKAGE}.Authorizer", fields={"requestResource": Type(_RESOURCE)})


@attrs.frozen(eq=False)
class AuthorizerCheck:
    """A check under construction, for example `authorizer.group('').resource('pods')`."""

    cel_type: str
    authorizer: Authorizer
    caller: UserInfo
    wish: Attributes


@attrs.frozen
class Decided:
    """The result of a check."""

    decision: Decision
    cel_type = _DECISION


class AuthorizerValue(dict[str, Any]):
    """The variable; its one field is the check of the request's own resource.

    Args:
        authorizer: decides.
        caller: the user in question.
        wish: the request, without a verb; None if there is no resource.
    """

    cel_type = AUTHORIZER.name

    def __init__(
        self, authorizer: Authorizer, caller: UserInfo, wish: Attributes | None = None
    ) -> None:
        super().__init__()
        self.authorizer = authorizer
        self.caller = caller
        if wish is not None:
            self["requestResource"] = AuthorizerCheck(_RESOURCE, authorizer, caller, wish)


def add_authorizer(library: Library) -> None:
    """Adds its methods."""
    method, whole = library.method, AUTHORIZER.name
    method("path", f"{whole};string", _PATH, _path)
    method("group", f"{whole};string", _GROUP, lambda a, text: _started(a, _GROUP, group=text))
    method("serviceAccount", f"{whole};string;string", whole, _account)
    method("resource", f"{_GROUP};string", _RESOURCE, _setter("resource"))
    for field in ("subresource", "namespace", "name"):
        method(field, f"{_RESOURCE};string", _RESOURCE, _setter(field))
    for each in (_PATH, _RESOURCE):
        method("check", f"{each};string", _DECISION, _check)
    method("allowed", _DECISION, "bool", lambda answer: answer.decision.allowed)
    method("reason", _DECISION, "string", lambda answer: answer.decision.reason)
    method("errored", _DECISION, "bool", lambda _: False)
    method("error", _DECISION, "string", lambda _: "")


def _started(value: AuthorizerValue, cel_type: str, **wish: str) -> AuthorizerCheck:
    return AuthorizerCheck(cel_type, value.authorizer, value.caller, Attributes("", **wish))


def _path(value: AuthorizerValue, text: str) -> AuthorizerCheck:
    if not text:
        raise EvalError("path must not be empty")
    return _started(value, _PATH, path=text)


def _account(value: AuthorizerValue, namespace: str, name: str) -> AuthorizerValue:
    groups = (ACCOUNTS_GROUP, f"{ACCOUNTS_GROUP}:{namespace}", AUTHENTICATED)
    user = f"system:serviceaccount:{namespace}:{name}"
    return AuthorizerValue(value.authorizer, UserInfo(user, groups=groups))


def _setter(field: str) -> Callable[[AuthorizerCheck, str], AuthorizerCheck]:
    def changed(check: AuthorizerCheck, text: str) -> AuthorizerCheck:
        wish = attrs.evolve(check.wish, **{field: text})
        return attrs.evolve(check, cel_type=_RESOURCE, wish=wish)

    return changed


def _check(check: AuthorizerCheck, verb: str) -> Decided:
    wish = attrs.evolve(check.wish, verb=verb)
    return Decided(check.authorizer.authorize(check.caller, wish))
