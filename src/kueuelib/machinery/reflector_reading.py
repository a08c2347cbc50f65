"""Reads keys and versions from the answers to a reflector, and classifies errors."""

from __future__ import annotations

from kueuelib.api.meta import PARTIAL, Obj, ObjectKey, Resource, key_of
from kueuelib.errors import (
    BadRequest,
    Invalid,
    MethodNotAllowed,
    NotAcceptable,
    ServerError,
    ServerTimeout,
    UnsupportedMediaType,
)
from kueuelib.machinery.reflector_protocol import MalformedStream, WatchEvent


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
