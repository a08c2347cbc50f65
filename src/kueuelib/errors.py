"""Every exception that kueuelib raises on purpose.

```
KueuelibError
├── ConfigError              input of the user cannot work: names the subject and the fix
├── InvalidQuantity          not a Kubernetes quantity
├── InvalidSelector          a label or field selector that cannot be parsed
├── InvalidObject            an object breaks rules: carries every broken rule with its field
├── TransportError           no answer: connection reset, timed out, TLS failed
│   └── NotConnected         no connection was made, so nothing was sent: refused, no route, no name
├── ApiError                 the API server answered with a failure (a `Status`)
│   ├── BadRequest           400
│   ├── Unauthorized         401
│   ├── Forbidden            403
│   ├── NotFound             404
│   ├── MethodNotAllowed     405
│   ├── NotAcceptable        406
│   ├── Conflict             409
│   │   └── AlreadyExists    409
│   ├── Gone                 410   (reasons Expired and Gone)
│   ├── TooLarge             413
│   ├── UnsupportedMediaType 415
│   ├── Invalid              422
│   ├── TooManyRequests      429
│   ├── ServerError          500 and what has no class of its own
│   ├── Unavailable          503
│   └── ServerTimeout        504
├── LeadershipLost           this process may no longer act as the leader: it has to end
│   └── HistoryLost          the server was restored from an older copy: start over
├── StopTimeout              parts of a manager did not end in time
├── TerminalError            a reconciler's error that no retry can cure
├── UnknownObject            a name or key that the values given to a function do not have
├── InvalidJob               a job's object does not describe its pods: names the field
└── PodSetError              what admission adds to a pod template contradicts it
    ├── InvalidPodSetInfo
    └── InvalidPodSetUpdate
```
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs


class KueuelibError(Exception):
    """The root of the tree."""


class ConfigError(KueuelibError):
    """Input of the user that cannot work.

    Attributes:
        subject: the file, key, address or object at fault.
        problem: what is wrong with it.
        fix: what to do about it.
    """

    def __init__(self, subject: str, problem: str, fix: str) -> None:
        super().__init__(f"{subject}: {problem}; {fix}")
        self.subject = subject
        self.problem = problem
        self.fix = fix


class InvalidQuantity(KueuelibError, ValueError):
    """A text that is not a Kubernetes quantity."""


class InvalidSelector(KueuelibError, ValueError):
    """A label or field selector that cannot be parsed."""


_FIELD_REASONS = (
    "FieldValueInvalid",
    "FieldValueRequired",
    "FieldValueForbidden",
    "FieldValueDuplicate",
    "FieldValueNotSupported",
    "FieldValueNotFound",
    "FieldValueTooLong",
    "FieldValueTooMany",
    "FieldValueTypeInvalid",
)
"""What Kubernetes calls the ways in which a field can be wrong."""


def _check_reason(error: FieldError, _: object, reason: str) -> None:
    if reason not in _FIELD_REASONS:
        fix = f"use one of {', '.join(_FIELD_REASONS)}"
        raise ConfigError(f"FieldError of {error.path!r}", f"the reason is {reason!r}", fix)


@attrs.frozen
class FieldError:
    """One broken rule of one field, in the form of Kubernetes' field errors.

    Attributes:
        path: for example `spec.resourceGroups[0].flavors[1].name`.
        reason: `FieldValueInvalid`, `FieldValueRequired`, `FieldValueForbidden`,
            `FieldValueDuplicate`, `FieldValueNotSupported`, `FieldValueNotFound`,
            `FieldValueTooLong`, `FieldValueTooMany` or `FieldValueTypeInvalid`.
        message: the whole text without the path, for example `Invalid value: "a": must be b`.

    Raises:
        ConfigError: the reason is none of these.
    """

    path: str
    reason: str = attrs.field(validator=_check_reason)
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


class InvalidObject(KueuelibError, ValueError):
    """An object breaks rules.

    Attributes:
        kind: the kind of the object.
        name: its name, empty when it has none.
        errors: every broken rule.
    """

    def __init__(self, kind: str, name: str, errors: Sequence[FieldError]) -> None:
        self.kind = kind
        self.name = name
        self.errors = tuple(errors)
        text = ", ".join(str(error) for error in self.errors)
        super().__init__(f'{kind} "{name}" is invalid: {text}')


class TransportError(KueuelibError):
    """The API server gave no answer.

    Attributes:
        address: the URL that was tried.
    """

    def __init__(self, address: str, problem: str) -> None:
        super().__init__(f"{address}: {problem}")
        self.address = address
        self.problem = problem

    @property
    def timed_out(self) -> bool:
        """Whether the time for the answer has passed; the server may have acted."""
        return isinstance(self.__cause__, TimeoutError)


class NotConnected(TransportError):
    """No connection was made, so the server has seen nothing: every request may be sent again."""


class ApiError(KueuelibError):
    """The API server answered with a failure.

    Attributes:
        code: the HTTP status.
        reason: the `reason` of the `Status`, for example `NotFound`.
        message: the `message` of the `Status`.
        details: the `details` of the `Status`: kind, name, group, causes, retryAfterSeconds.
        retry_after: seconds after which the server wants to be asked again, or None.
        answer: what came, with `status`, `headers` and `body`; None if it did not come by HTTP.
    """

    code = 500
    reason = "InternalError"

    def __init__(
        self,
        message: str,
        *,
        code: int | None = None,
        reason: str | None = None,
        details: Mapping[str, Any] | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = type(self).code if code is None else code
        self.reason = type(self).reason if reason is None else reason
        self.details = dict(details or {})
        self._has_details = details is not None
        self.retry_after = retry_after
        self.answer: Any = None

    def status(self) -> dict[str, Any]:
        """The `Status` object that says the same."""
        body: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "code": self.code,
        }
        if self.reason:
            body["reason"] = self.reason
        if self.details or self._has_details:
            body["details"] = self.details
        return body


class BadRequest(ApiError):
    """400."""

    code, reason = 400, "BadRequest"


class Unauthorized(ApiError):
    """401."""

    code, reason = 401, "Unauthorized"


class Forbidden(ApiError):
    """403; also what a webhook denies."""

    code, reason = 403, "Forbidden"


class NotFound(ApiError):
    """404."""

    code, reason = 404, "NotFound"


class MethodNotAllowed(ApiError):
    """405."""

    code, reason = 405, "MethodNotAllowed"


class NotAcceptable(ApiError):
    """406."""

    code, reason = 406, "NotAcceptable"


class Conflict(ApiError):
    """409: the object changed meanwhile, or field managers disagree."""

    code, reason = 409, "Conflict"


class AlreadyExists(Conflict):
    """409: an object of that name exists."""

    reason = "AlreadyExists"


class Gone(ApiError):
    """410: the resource version or continue token is too old."""

    code, reason = 410, "Expired"


class TooLarge(ApiError):
    """413."""

    code, reason = 413, "RequestEntityTooLarge"


class UnsupportedMediaType(ApiError):
    """415."""

    code, reason = 415, "UnsupportedMediaType"


class Invalid(ApiError):
    """422: the object breaks rules; `details["causes"]` lists them."""

    code, reason = 422, "Invalid"


class TooManyRequests(ApiError):
    """429."""

    code, reason = 429, "TooManyRequests"


class ServerError(ApiError):
    """500, and every failure without a class of its own."""


class Unavailable(ApiError):
    """503."""

    code, reason = 503, "ServiceUnavailable"


class ServerTimeout(ApiError):
    """504."""

    code, reason = 504, "Timeout"


_BY_CODE: dict[int, type[ApiError]] = {
    error.code: error
    for error in (
        BadRequest,
        Unauthorized,
        Forbidden,
        NotFound,
        MethodNotAllowed,
        NotAcceptable,
        Conflict,
        Gone,
        TooLarge,
        UnsupportedMediaType,
        Invalid,
        TooManyRequests,
        Unavailable,
        ServerTimeout,
    )
}


def api_error(
    code: int, body: Mapping[str, Any] | None, *, text: str = "", retry_after: float | None = None
) -> ApiError:
    """The exception for a failed answer.

    Args:
        code: the HTTP status.
        body: the decoded `Status`, or None when the body was something else.
        text: what the body said if it was not a `Status`; shown as the message.
        retry_after: seconds of a `Retry-After` header.
    """
    status = body if body is not None and body.get("kind") == "Status" else {}
    reason = status.get("reason")
    kind = AlreadyExists if reason == "AlreadyExists" else _BY_CODE.get(code, ServerError)
    details = status.get("details") or {}
    after = details.get("retryAfterSeconds") if retry_after is None else retry_after
    return kind(
        status.get("message") or text or f"the server answered {code}",
        code=code,
        reason=reason,
        details=details,
        retry_after=after,
    )


class LeadershipLost(KueuelibError):
    """This process may no longer act as the leader: it has to end, without grace."""


class HistoryLost(LeadershipLost):
    """The server was restored from an older copy than this process has seen.

    What the process holds may describe what never happened on this server: it has to start over.

    Args:
        what: was read, such as the plural of a kind.
        seen: the resource version that this process has seen before.
        got: the older one in an answer that must not be older: to a write, or to a read that asks
            for no version.
    """

    def __init__(self, what: str, seen: int, got: int) -> None:
        super().__init__(
            f"{what} had resource version {seen}, and now {got}: "
            "the server was restored from an older copy"
        )


class StopTimeout(KueuelibError):
    """Parts of a manager did not end in time.

    Attributes:
        names: the parts.
    """

    def __init__(self, names: Sequence[str], seconds: float) -> None:
        super().__init__(f"did not end within {seconds:g} s: {', '.join(names)}")
        self.names = tuple(names)


class TerminalError(KueuelibError):
    """A reconciler's error that no retry can cure: the object is not queued again.

    In a teardown the finalizer stays: return None to let the object go.
    """


class UnknownObject(KueuelibError, KeyError):
    """The values that a function was given have no object of this name."""

    def __str__(self) -> str:
        return Exception.__str__(self)  # a KeyError shows the representation of its message


class InvalidJob(KueuelibError, ValueError):
    """The object of a job does not describe pods that can be queued.

    Attributes:
        path: the field at fault.
        problem: what is wrong with it.
    """

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path}: {problem}")
        self.path = path
        self.problem = problem


class PodSetError(TerminalError):
    """What admission adds to a pod template contradicts it."""


class InvalidPodSetInfo(PodSetError):
    """The number or the names of the pod sets do not match."""


class InvalidPodSetUpdate(PodSetError):
    """A label, annotation or node selector has another value already."""
