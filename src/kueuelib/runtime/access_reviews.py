"""Asks the API server who a caller is and what they may do."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import attrs

from kueuelib.api.meta import Obj
from kueuelib.errors import Forbidden, Unauthorized
from kueuelib.runtime.client import Client
from kueuelib.runtime.clock import SYSTEM_CLOCK, Clock

REMEMBERED = 60.0
"""Seconds for which the permission of a reader is remembered."""
LIMIT = 1000
"""The maximum number of readers that are remembered."""
_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
_TOKENS = "/apis/authentication.k8s.io/v1/tokenreviews"


@attrs.frozen
class Caller:
    """The sender of a request.

    Attributes:
        user: the name.
        groups: those that the user is in.
        uid: empty when it is not known.
        extra: what else the API server knows of the user.
    """

    user: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Mapping[str, Sequence[str]] = attrs.field(factory=dict)


@attrs.frozen
class AccessAnswer:
    """Whether a caller may do something, and why; the reason is often empty."""

    allowed: bool
    reason: str = ""


def bearer_token(header: str) -> str:
    """The token in an `Authorization` header.

    Raises:
        Unauthorized: there is none.
    """
    scheme, _, token = header.partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise Unauthorized("Unauthorized")
    return token.strip()


async def caller_by_token(client: Client, token: str) -> Caller:
    """The owner of a token.

    Raises:
        Unauthorized: the token is not valid.
        ApiError: the API server cannot say.
        TransportError: no answer.
    """
    body = {"apiVersion": "authentication.k8s.io/v1", "spec": {"token": token}}
    answer = await client.request("POST", _TOKENS, body=body, verb="create")
    status = answer.get("status") or {}
    if not status.get("authenticated"):
        raise Unauthorized("Unauthorized")
    user = status.get("user") or {}
    groups, extra = tuple(user.get("groups") or ()), user.get("extra") or {}
    return Caller(user.get("username") or "", groups, user.get("uid") or "", extra)


async def review(client: Client, caller: Caller, **attributes: Mapping[str, str]) -> AccessAnswer:
    """Whether a caller may do something.

    Args:
        client: asks, with rights of its own.
        caller: who.
        attributes: `resourceAttributes` or `nonResourceAttributes` of the review.

    Raises:
        ApiError: the API server cannot say.
        TransportError: no answer.
    """
    spec: Obj = {"user": caller.user, "groups": list(caller.groups), **attributes}
    if caller.uid:
        spec["uid"] = caller.uid
    if caller.extra:
        spec["extra"] = {key: list(values) for key, values in caller.extra.items()}
    body = {"apiVersion": "authorization.k8s.io/v1", "spec": spec}
    answer = await client.request("POST", _REVIEWS, body=body, verb="create")
    status = answer.get("status") or {}
    return AccessAnswer(bool(status.get("allowed")), status.get("reason") or "")


class PathReaders:
    """Admits those who may read a path that is not about objects, for example `/metrics`.

    Args:
        client: asks the API server.
        path: what is read.
        clock: monotonic time.
    """

    def __init__(self, client: Client, path: str, clock: Clock = SYSTEM_CLOCK) -> None:
        self._client = client
        self._path = path
        self._clock = clock
        self._known: dict[bytes, float] = {}

    async def check(self, header: str) -> None:
        """Checks the `Authorization` header of a request.

        Raises:
            Unauthorized: it has no valid token.
            Forbidden: they may not read the path.
            ApiError: the API server cannot say.
            TransportError: no answer.
        """
        token = bearer_token(header)
        digest, now = hashlib.sha256(token.encode()).digest(), self._clock.monotonic()
        if self._known.get(digest, 0.0) > now:
            return
        caller = await caller_by_token(self._client, token)
        wanted = {"path": self._path, "verb": "get"}
        answer = await review(self._client, caller, nonResourceAttributes=wanted)
        if not answer.allowed:
            why = f": {answer.reason}" if answer.reason else ""
            raise Forbidden(
                f'User "{caller.user}" cannot get path "{self._path}"{why}; bind a ClusterRole '
                "with this nonResourceURL"
            )
        if len(self._known) >= LIMIT:
            self._known.pop(next(iter(self._known)))
        self._known[digest] = now + REMEMBERED
