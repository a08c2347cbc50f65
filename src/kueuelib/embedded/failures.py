"""The errors of the API, in the words that clients of Kubernetes know."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from kueuelib.api.meta import ObjectKey
from kueuelib.embedded.registry.kinds import Kind
from kueuelib.errors import (
    AlreadyExists,
    ApiError,
    BadRequest,
    Conflict,
    FieldError,
    Forbidden,
    Gone,
    Invalid,
    MethodNotAllowed,
    NotFound,
    ServerTimeout,
    UnsupportedMediaType,
)

MODIFIED = (
    "the object has been modified; please apply your changes to the latest version and try again"
)


def details(kind: Kind, name: str = "", **more: Any) -> dict[str, Any]:
    """The `details` of a Status about one object."""
    return _about(kind.plural, kind.group, name) | more


def _about(kind: str, group: str, name: str) -> dict[str, Any]:
    named = {"name": name, "group": group}
    return {key: value for key, value in named.items() if value} | {"kind": kind}


def not_found(kind: Kind, name: str) -> NotFound:
    """There is no such object."""
    return NotFound(f'{kind.qualified_plural} "{name}" not found', details=details(kind, name))


def unknown_resource() -> NotFound:
    """The path does not name a resource."""
    return NotFound("the server could not find the requested resource", details={})


class PlainText(ApiError):
    """A failure whose answer is plain text, not a Status."""


def no_page() -> PlainText:
    """The path is not served."""
    return PlainText("404 page not found\n", code=404, reason="NotFound")


def no_url() -> PlainText:
    """The path is not valid."""
    return PlainText("400 Bad Request", code=400, reason="BadRequest")


def already_exists(kind: Kind, name: str, *, ending: bool = False) -> AlreadyExists:
    """The name is taken, possibly by an object that is being deleted."""
    text = f'{kind.qualified_plural} "{name}" already exists'
    about = details(kind, name)
    return AlreadyExists(f"object is being deleted: {text}" if ending else text, details=about)


def conflict(kind: Kind, name: str, why: str = MODIFIED) -> Conflict:
    """The write contradicts what is stored."""
    return Conflict(
        f'Operation cannot be fulfilled on {kind.qualified_plural} "{name}": {why}',
        details=details(kind, name),
    )


def invalid(kind: Kind, name: str, errors: Sequence[FieldError]) -> Invalid:
    """The object breaks rules, which are listed as causes."""
    return invalid_named(kind.kind, kind.group, name, errors)


def invalid_named(kind: str, group: str, name: str, errors: Sequence[FieldError]) -> Invalid:
    """The same for objects that are not stored: options, reviews."""
    texts = list(dict.fromkeys(map(str, errors)))
    text = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    about = _about(kind, group, name)
    about["causes"] = [
        {"reason": error.reason, "message": error.message, "field": error.path} for error in errors
    ]
    qualified = f"{kind}.{group}" if group else kind
    return Invalid(f'{qualified} "{name}" is invalid: {text}', details=about)


def forbidden(kind: Kind, name: str, why: str) -> Forbidden:
    """A plug-in refuses."""
    return Forbidden(
        f'{kind.qualified_plural} "{name}" is forbidden: {why}', details=details(kind, name)
    )


def absent(plural: str, name: str, group: str = "") -> NotFound:
    """There is no object with the name, which the request refers to."""
    qualified = f"{plural}.{group}" if group else plural
    return NotFound(f'{qualified} "{name}" not found', details=_about(plural, group, name))


def other_namespace() -> BadRequest:
    """The object names another namespace than the path."""
    return BadRequest(
        "the namespace of the provided object does not match the namespace sent on the request"
    )


def other_uid(kind: Kind, name: str, wanted: str, actual: str) -> Conflict:
    """The name belongs to another object."""
    why = f"UID in precondition: {wanted}, UID in object meta: {actual}"
    return conflict(kind, name, f"Precondition failed: {why}")


def expired(message: str) -> Gone:
    """The resource version or continue token is too old."""
    return Gone(message, reason="Expired")


def future_version(asked: int, current: int) -> ServerTimeout:
    """A resource version that does not exist yet."""
    causes = [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]
    return ServerTimeout(
        f"Timeout: Too large resource version: {asked}, current: {current}",
        details={"causes": causes, "retryAfterSeconds": 1},
        retry_after=1,
    )


def unexplained(message: str, code: int = 500) -> ApiError:
    """A failure for which Kubernetes gives only a status and a message, but no reason."""
    return ApiError(message, code=code, reason="")


def wrong_method() -> MethodNotAllowed:
    """The resource exists but not this verb of it."""
    text = "the server does not allow this method on the requested resource"
    return MethodNotAllowed(text, details={})


def unsupported_patch() -> UnsupportedMediaType:
    """The patch is of a type that is not accepted here."""
    return UnsupportedMediaType("415: Unsupported Media Type", details={})


def unsupported_media_type(accepted: Iterable[str]) -> UnsupportedMediaType:
    """The body is of a type that is not accepted here."""
    return UnsupportedMediaType(
        "the body of the request was in an unknown format - accepted media types include: "
        + ", ".join(accepted)
    )


def unnamed(key: ObjectKey) -> BadRequest:
    """The object has no name, and the URL does not provide one."""
    return BadRequest(
        f"the name of the object ({key.name} based on URL) was undeterminable: "
        "name must be provided"
    )


def mismatch(key: ObjectKey, name: str) -> BadRequest:
    """The name of the object is not that of the URL."""
    return BadRequest(
        f"the name of the object ({name}) does not match the name on the URL ({key.name})"
    )
