"""Authentication: a bearer token or a client certificate."""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping
from typing import Any

import attrs
from aiohttp import web

from kueuelib.embedded.access.attributes import AUTHENTICATED, UNAUTHENTICATED
from kueuelib.embedded.access.tokens import ISSUER, Verified
from kueuelib.embedded.admission.plugin import Caller
from kueuelib.errors import Unauthorized

ANONYMOUS = Caller("system:anonymous", groups=(UNAUTHENTICATED,))
OPEN_PATHS = frozenset(("/readyz", "/livez", "/healthz", "/version"))


class Authenticator:
    """Authenticates callers of one server by tokens; TLS has verified certificates.

    Args:
        tokens: fixed ones.
        signed: returns the owner of a signed token.
    """

    def __init__(
        self, tokens: Mapping[str, Caller], signed: Callable[[str], Verified | None]
    ) -> None:
        self._tokens = {token.encode(): caller for token, caller in tokens.items()}
        self._signed = signed

    def add(self, token: str, caller: Caller) -> None:
        """Adds a token."""
        self._tokens[token.encode()] = caller

    def verify(self, token: str) -> Verified | None:
        """The owner of a token, for its audiences; None for an unknown token."""
        given = token.encode(errors="surrogateescape")
        for known, caller in self._tokens.items():
            if hmac.compare_digest(known, given):
                return Verified(caller, (ISSUER,))
        return self._signed(token)

    def caller(self, request: web.BaseRequest) -> Caller | None:
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


def _subject(certificate: Mapping[str, Any]) -> Caller:
    user, groups = "", []
    for part in certificate.get("subject", ()):
        for key, value in part:
            if key == "commonName":
                user = value
            elif key == "organizationName":
                groups.append(value)
    return Caller(user, groups=(*groups, AUTHENTICATED))
