"""Read keys and versions from what a server sends to a reflector, and classify its errors."""

from __future__ import annotations

from kueuelib.api.meta import Obj, ObjectKey, key_of
from kueuelib.errors import ServerError, ServerTimeout
from kueuelib.machinery.reflector_protocol import MalformedStream


def is_too_large_version(error: Exception) -> bool:
    """Whether the server does not have the requested resource version yet."""
    if not isinstance(error, ServerTimeout):
        return False
    causes = error.details.get("causes") or ()
    return "Too large resource version" in error.message or any(
        cause.get("reason") == "ResourceVersionTooLarge" for cause in causes
    )


def is_internal(error: Exception) -> bool:
    """Whether it is the server's `InternalError`, which may pass."""
    return isinstance(error, ServerError) and error.reason == "InternalError"


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
