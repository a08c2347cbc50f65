"""Authentication: a bearer token, a client certificate, or acting as another user."""

from __future__ import annotations

import hmac
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from urllib.parse import unquote

import attrs
from aiohttp import web

from kueuelib.embedded.access.attributes import (
    AUTHENTICATED,
    UNAUTHENTICATED,
    Attributes,
    Authorizer,
    refusal,
)
from kueuelib.embedded.access.rbac import ACCOUNT_PREFIX
from kueuelib.embedded.access.tokens import ACCOUNTS_GROUP, ISSUER, Verified
from kueuelib.embedded.admission.plugin import UserInfo
from kueuelib.errors import BadRequest, Unauthorized

# ---- `Impersonate-*` headers: acting as another user, if that is allowed -------------------------

USER = "Impersonate-User"
GROUP = "Impersonate-Group"
UID = "Impersonate-Uid"
EXTRA = "impersonate-extra-"
ANONYMOUS_USER = "system:anonymous"


def impersonated(caller: UserInfo, headers: Any, authorizer: Authorizer) -> UserInfo:
    """The impersonated caller; the same caller without such headers.

    Args:
        caller: the authenticated caller.
        headers: of the request, with `getall`.
        authorizer: decides about impersonation.

    Raises:
        Forbidden: the caller may not.
        BadRequest: groups or extras are given without a user.
    """
    user = _readable(headers.get(USER, ""))
    groups = tuple(map(_readable, headers.getall(GROUP, ())))
    uid = _readable(headers.get(UID, ""))
    extra: dict[str, list[str]] = {}
    for name, value in headers.items():
        if name.lower().startswith(EXTRA):
            extra.setdefault(unquote(name[len(EXTRA) :]).lower(), []).append(_readable(value))
    if not user:
        if groups or uid or extra:
            raise BadRequest(
                f"requested {_shown(uid, groups, extra)} without impersonating a user name"
            )
        return caller
    for wish in _wishes(user, groups, uid, extra):
        decision = authorizer.authorize(caller, wish)
        if not decision.allowed:
            raise refusal(caller, wish, decision.reason)
    if _is_account(user) and not groups:
        namespace = user.removeprefix(ACCOUNT_PREFIX).partition(":")[0]
        groups = (ACCOUNTS_GROUP, f"{ACCOUNTS_GROUP}:{namespace}")
    state = UNAUTHENTICATED if user == ANONYMOUS_USER else AUTHENTICATED
    if state not in groups and UNAUTHENTICATED not in groups:
        groups = (*groups, state)
    return UserInfo(user, uid, groups, extra, caller.agent)


def _readable(value: str) -> str:
    """A header without invalid bytes, which an answer could not contain."""
    return value.encode(errors="surrogateescape").decode(errors="replace")


def _shown(uid: str, groups: tuple[str, ...], extra: Mapping[str, list[str]]) -> str:
    """A caller without a name, as Kubernetes prints it."""

    def texts(values: Iterable[str]) -> str:
        return "[]string{" + ", ".join(map(json.dumps, values)) + "}"

    known = ", ".join(f"{json.dumps(key)}:{texts(extra[key])}" for key in sorted(extra))
    named = f"map[string][]string{{{known}}}" if extra else "map[string][]string(nil)"
    listed = texts(groups) if groups else "[]string(nil)"
    return f'&user.DefaultInfo{{Name:"", UID:{json.dumps(uid)}, Groups:{listed}, Extra:{named}}}'


def _is_account(user: str) -> bool:
    return user.startswith(ACCOUNT_PREFIX) and user.count(":") == 3


def _wishes(
    user: str, groups: tuple[str, ...], uid: str, extra: Mapping[str, list[str]]
) -> list[Attributes]:
    about = "authentication.k8s.io"
    if _is_account(user):
        namespace, _, name = user.removeprefix(ACCOUNT_PREFIX).partition(":")
        attributes = [
            Attributes("impersonate", resource="serviceaccounts", namespace=namespace, name=name)
        ]
    else:
        attributes = [Attributes("impersonate", resource="users", name=user)]
    attributes += [Attributes("impersonate", resource="groups", name=group) for group in groups]
    if uid:
        attributes.append(Attributes("impersonate", about, "uids", name=uid))
    for key, values in extra.items():
        attributes += [
            Attributes("impersonate", about, "userextras", key, name=each) for each in values
        ]
    return attributes


# --------------------------------------------------------------------------------------------------

ANONYMOUS = UserInfo("system:anonymous", groups=(UNAUTHENTICATED,))
OPEN_PATHS = frozenset(("/readyz", "/livez", "/healthz", "/version"))


class Authenticator:
    """Authenticates callers of one server by tokens; TLS has verified certificates.

    Args:
        tokens: fixed ones.
        signed: returns the owner of a signed token.
    """

    def __init__(
        self, tokens: Mapping[str, UserInfo], signed: Callable[[str], Verified | None]
    ) -> None:
        self._tokens = {token.encode(): caller for token, caller in tokens.items()}
        self._signed = signed

    def add(self, token: str, caller: UserInfo) -> None:
        """Adds a token."""
        self._tokens[token.encode()] = caller

    def verify(self, token: str) -> Verified | None:
        """The owner of a token, for its audiences; None for an unknown token."""
        given = token.encode(errors="surrogateescape")
        for known, caller in self._tokens.items():
            if hmac.compare_digest(known, given):
                return Verified(caller, (ISSUER,))
        return self._signed(token)

    def caller(self, request: web.BaseRequest) -> UserInfo | None:
        """The caller; None without credentials.

        Raises:
            Unauthorized: the credentials are wrong.
        """
        agent = request.headers.get("User-Agent", "")
        header = request.headers.get("Authorization", "")
        if header:
            scheme, _, token = header.partition(" ")
            if scheme.lower() == "bearer":
                identity = self.verify(token.strip())
                if identity is not None and ISSUER in identity.audiences:
                    return attrs.evolve(identity.caller, agent=agent)
            raise Unauthorized("Unauthorized")
        transport = request.transport
        certificate = transport.get_extra_info("peercert") if transport is not None else None
        return attrs.evolve(_subject(certificate), agent=agent) if certificate else None


def _subject(certificate: Mapping[str, Any]) -> UserInfo:
    user, groups = "", []
    for part in certificate.get("subject", ()):
        for key, value in part:
            if key == "commonName":
                user = value
            elif key == "organizationName":
                groups.append(value)
    return UserInfo(user, groups=(*groups, AUTHENTICATED))
