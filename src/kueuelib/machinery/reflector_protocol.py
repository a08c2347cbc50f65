"""What a `ReflectorCore` is given, and its commands to the shell; answers are classified."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import attrs

from kueuelib.api.meta import PARTIAL, Obj, ObjectKey, Resource, key_of
from kueuelib.errors import (
    BadRequest,
    Invalid,
    KueuelibError,
    MethodNotAllowed,
    NotAcceptable,
    ServerError,
    ServerTimeout,
    UnsupportedMediaType,
)
from kueuelib.machinery.store import StoreUpdate


class MalformedStream(KueuelibError):
    """A list or a watch delivered malformed data, or nothing at all."""


# ---- inputs -------------------------------------------------------------------------------------


@attrs.frozen
class Listed:
    """The answer to a `List`.

    Attributes:
        items: the objects of this page.
        resource_version: that of the list.
        continue_token: not empty when more pages follow.
    """

    items: Sequence[Obj]
    resource_version: str
    continue_token: str = ""


@attrs.frozen
class ListFailed:
    """A `List` failed, with an `ApiError`, a `TransportError` or whatever decoding raised."""

    error: Exception


@attrs.frozen
class WatchOpened:
    """The server accepted a `Watch`; events may follow."""


class WatchEvent(NamedTuple):
    """One line of a watch: `ADDED`, `MODIFIED`, `DELETED`, `BOOKMARK` or `ERROR` and its object."""

    type: str
    object: Obj


@attrs.frozen
class Received:
    """Events of the present stream, in order; all that are available, because batches cost less."""

    events: Sequence[WatchEvent]


@attrs.frozen
class StreamEnded:
    """The watch ended, or could not be opened.

    Attributes:
        error: None if it was closed: by the server, or by the shell after a silence or its time
            limit. Otherwise why it failed: a refusal, a broken connection or a malformed line.
    """

    error: Exception | None = None


@attrs.frozen
class Tick:
    """The `Sleep` is over, or `ReflectorCore.deadline` has come."""


Input = Listed | ListFailed | WatchOpened | Received | StreamEnded | Tick


# ---- commands -----------------------------------------------------------------------------------


@attrs.frozen
class List:
    """Ask for one page; answer with `Listed` or `ListFailed`.

    Attributes:
        resource_version: the query parameter; empty: leave it out (a consistent read).
        limit: the query parameter; 0: leave it out.
        continue_token: the query parameter `continue`; empty: leave it out.
        cause: why, for metrics and logs: `start`, `expired`, `error`, `outdated`, `short-watch`,
            `unconfirmed`, `untrusted`, `unsupported`, `page`; `look`: only where the server stands.
    """

    resource_version: str
    limit: int = 0
    continue_token: str = ""
    cause: str = "start"


@attrs.frozen
class Watch:
    """Open a stream with bookmarks; answer with `WatchOpened`, `Received`..., `StreamEnded`.

    Attributes:
        resource_version: the query parameter; empty: leave it out.
        timeout_seconds: the query parameter; the shell gives up a little later by itself.
        initial_events: ask for `sendInitialEvents=true` and
            `resourceVersionMatch=NotOlderThan`.
        cause: why: `listed`, `ended`, `retry`, or a cause of `List` when `initial_events`.
    """

    resource_version: str
    timeout_seconds: int
    initial_events: bool = False
    cause: str = "listed"


@attrs.frozen
class Sleep:
    """Wait; answer with `Tick`."""

    seconds: float


@attrs.frozen
class Apply:
    """Carry out changes on the store, then call the handlers."""

    changes: tuple[StoreUpdate[Obj], ...]


@attrs.frozen
class Replace:
    """Make the store hold exactly these objects, then call the handlers.

    Attributes:
        items: objects by key, without duplicates.
        initial: whether it is the first filling.
        kept: keys that stay as they are, because a newer state than the listed one is known.
    """

    items: tuple[tuple[ObjectKey, Obj], ...]
    initial: bool
    kept: frozenset[ObjectKey] = frozenset()


@attrs.frozen
class MarkSynced:
    """The store has its first full content; returned once."""


@attrs.frozen
class ReportError:
    """Log and count; the core already decided what comes next.

    Attributes:
        error: what happened.
        during: `list` or `watch`.
    """

    error: Exception
    during: str


Activity = List | Watch | Sleep
Command = Activity | Apply | Replace | MarkSynced | ReportError


# ---- reads keys and versions from the answers to a reflector, and classifies errors --------------


def is_too_large_version(error: Exception) -> bool:
    """Whether the server does not have the requested resource version yet."""
    if not isinstance(error, ServerTimeout):
        return False
    causes = error.details.get("causes") or ()
    return "Too large resource version" in error.message or any(
        cause.get("reason") == "ResourceVersionTooLarge" for cause in causes
    )


def is_internal(error: Exception) -> bool:
    """Whether it is the server's `InternalError`, which may be temporary."""
    return isinstance(error, ServerError) and error.reason == "InternalError"


def is_unsupported(error: Exception) -> bool:
    """Whether the server does not support the request."""
    unsupported = BadRequest, Invalid, MethodNotAllowed, NotAcceptable, UnsupportedMediaType
    return isinstance(error, unsupported)


def key_in(obj: Obj) -> ObjectKey:
    """The key of an object.

    Raises:
        MalformedStream: it has no name.
    """
    try:
        return key_of(obj)
    except (KeyError, TypeError, AttributeError) as error:
        raise MalformedStream(f"an object without a name: {error!r}") from error


def version_in(obj: Obj) -> str:
    """The resource version of an object; empty when there is none.

    Raises:
        MalformedStream: it has no metadata.
    """
    try:
        return obj["metadata"].get("resourceVersion") or ""
    except (KeyError, TypeError, AttributeError) as error:
        raise MalformedStream(f"an object without metadata: {error!r}") from error


def misfit(event: WatchEvent, resource: Resource | None) -> MalformedStream | None:
    """What is wrong with an event of a watch of a kind (None: any kind)."""
    if event.type not in ("ADDED", "MODIFIED", "DELETED"):
        return MalformedStream(f"unknown watch event {event.type!r}")
    kind = event.object.get("kind")
    if resource is not None and kind and kind not in (PARTIAL, resource.kind):
        return MalformedStream(f"a watch of {resource.kind} delivered a {kind}")
    return None
