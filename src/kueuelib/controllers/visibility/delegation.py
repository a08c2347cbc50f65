"""Authenticates and authorizes callers by the API server, as every aggregated API does.

The API server passes the user of a request in headers, and proves its identity with a client
certificate. A client that connects directly sends a bearer token.
"""

from __future__ import annotations

import json
import ssl
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

import attrs

from kueuelib.api.kinds import CONFIG_MAPS
from kueuelib.api.meta import Obj, ObjectKey
from kueuelib.errors import ApiError, Forbidden, TransportError
from kueuelib.runtime.access_reviews import Caller, caller_by_token, review
from kueuelib.runtime.client import Client
from kueuelib.runtime.logs import get_logger

TRUST = ObjectKey("kube-system", "extension-apiserver-authentication")
"""The ConfigMap that says how to recognize the API server."""


@attrs.frozen
class Wish:
    """The object that the caller wants to read.

    Attributes:
        version: of the visibility API.
        resource: the plural.
        subresource: of the object.
        name: the object.
        namespace: empty for cluster-scoped kinds.
        group: the API group.
    """

    version: str
    resource: str
    subresource: str
    name: str
    namespace: str
    group: str

    def refusal(self, caller: Caller, reason: str) -> Forbidden:
        """The error in Kubernetes' words."""
        where = f'in the namespace "{self.namespace}"' if self.namespace else "at the cluster scope"
        return Forbidden(
            f'{self.resource}.{self.group} "{self.name}" is forbidden: User "{caller.user}" cannot '
            f'get resource "{self.resource}/{self.subresource}" in API group "{self.group}" {where}'
            + (f": {reason}" if reason else ""),
            details={"name": self.name, "group": self.group, "kind": self.resource},
        )


@attrs.frozen
class FrontProxy:
    """How to recognize the API server.

    Attributes:
        authority: the signer of its client certificate, PEM; empty if none is trusted.
        names: the trusted common names; any when empty.
        users: the headers with the user's name.
        groups: the headers with groups.
        uids: the headers with the user's UID.
        extras: the prefixes of headers with anything else.
    """

    authority: str = ""
    names: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    uids: tuple[str, ...] = ()
    extras: tuple[str, ...] = ()


def front_proxy(config_map: Obj) -> FrontProxy:
    """The content of the ConfigMap; an unreadable one trusts no certificate."""
    data = config_map.get("data") or {}

    def listed(key: str) -> tuple[str, ...]:
        names = json.loads(data.get(f"requestheader-{key}") or "[]")
        return tuple(str(each) for each in names)

    try:
        return FrontProxy(
            authority=data.get("requestheader-client-ca-file") or "",
            names=listed("allowed-names"),
            users=listed("username-headers"),
            groups=listed("group-headers"),
            uids=listed("uid-headers"),
            extras=listed("extra-headers-prefix"),
        )
    except (ValueError, TypeError):
        return FrontProxy()


def proxied(
    proxy: FrontProxy,
    certificate: Mapping[str, Any] | None,
    headers: Mapping[str, str],
    all_of: Any,
) -> Caller | None:
    """The user of a request that the API server forwards; None if the caller is not the API server.

    Args:
        proxy: how to recognize the API server.
        certificate: the verified certificate of the peer, as `ssl` decodes it; None for none.
        headers: of the request, without regard to case.
        all_of: returns all values of a header.
    """
    if not certificate or not proxy.authority:
        return None
    if proxy.names and _common_name(certificate) not in proxy.names:
        return None
    user = next((headers[name] for name in proxy.users if headers.get(name)), "")
    if not user:
        return None
    extra: dict[str, list[str]] = {}
    for name in headers:
        for prefix in proxy.extras:
            if name.lower().startswith(prefix.lower()):
                extra[unquote(name[len(prefix) :]).lower()] = list(all_of(name))
    groups = [group for name in proxy.groups for group in all_of(name)]
    uid = next((headers[name] for name in proxy.uids if headers.get(name)), "")
    return Caller(user, tuple(groups), uid, extra)


def _common_name(certificate: Mapping[str, Any]) -> str:
    for part in certificate.get("subject", ()):
        for key, value in part:
            if key == "commonName":
                return str(value)
    return ""


class Delegation:
    """Asks the API server who a caller is and what they may do.

    Args:
        client: asks, with the manager's rights.
        tls: the context of the server, into which the trusted authority is loaded.
    """

    def __init__(self, client: Client, tls: ssl.SSLContext) -> None:
        self.proxy = FrontProxy()
        self._client = client
        self._tls = tls
        self._problem = ""
        self._log = get_logger("visibility")

    @property
    def knows(self) -> bool:
        """Whether the API server can be known."""
        return bool(self.proxy.authority)

    async def learn(self) -> None:
        """Reads how to recognize the API server; without the right to do so, only tokens are
        accepted.
        """
        try:
            proxy = front_proxy(await self._client.get(CONFIG_MAPS, TRUST))
            if proxy == self.proxy or not proxy.authority:
                return
            self._tls.load_verify_locations(cadata=proxy.authority)
        except (ApiError, TransportError, ssl.SSLError, ValueError) as error:
            if str(error) != self._problem:  # it is looked at again and again
                self._problem = str(error)
                self._log.warning("the API server cannot be identified", error=self._problem)
            return
        self._problem = ""
        self._tls.verify_mode = ssl.CERT_OPTIONAL
        self.proxy = proxy

    async def by_token(self, token: str) -> Caller:
        """The owner of a token; see `caller_by_token`."""
        return await caller_by_token(self._client, token)

    async def authorize(self, caller: Caller, wish: Wish) -> None:
        """Checks that a caller may read an object.

        Raises:
            Forbidden: they may not.
            ApiError: the API server cannot say.
        """
        attributes = {key: value for key, value in attrs.asdict(wish).items() if value}
        wanted = {**attributes, "verb": "get"}
        answer = await review(self._client, caller, resourceAttributes=wanted)
        if not answer.allowed:
            raise wish.refusal(caller, answer.reason)
