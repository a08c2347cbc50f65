"""`AdmissionReview` v1: raw request in, raw response out.

Handlers are pure functions of raw objects. Nothing here waits or uses the network.
"""

from __future__ import annotations

import base64
import copy
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import attrs
import orjson

from kueuelib.api.meta import Obj
from kueuelib.api.patch import diff_json_patch
from kueuelib.errors import ApiError, FieldError, Forbidden, Invalid, InvalidObject

MAX_WARNING = 256
"""Characters of one warning."""
MAX_WARNINGS = 4096
"""Characters of all warnings of one answer."""


@attrs.frozen
class AdmissionRequest:
    """What the API server is about to do.

    Attributes:
        uid: copied into the answer.
        operation: `CREATE`, `UPDATE`, `DELETE` or `CONNECT`.
        group: of the object's kind, as for `version` and `kind`.
        version: see `group`.
        kind: see `group`.
        resource: the plural.
        subresource: for example `status`, or empty.
        namespace: or empty.
        name: empty until the API server has generated one.
        object: the new object; None on deletion.
        old_object: the present one; None on creation.
        user: `username`, `uid`, `groups`, `extra`.
        dry_run: nothing will be stored.
        options: the options of the call.
    """

    uid: str
    operation: str
    group: str = ""
    version: str = ""
    kind: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    object: Obj | None = None
    old_object: Obj | None = None
    user: Mapping[str, Any] = attrs.field(factory=dict)
    dry_run: bool = False
    options: Mapping[str, Any] = attrs.field(factory=dict)


@attrs.frozen
class ValidationResult:
    """What a validating handler found.

    Attributes:
        errors: every broken rule; any of them denies the request.
        warnings: shown to the user whatever the outcome.
    """

    errors: Sequence[FieldError] = ()
    warnings: Sequence[str] = ()


Mutator = Callable[[Obj], Obj]
"""The object with its defaults, as a new dict; the argument may be changed, it is a copy."""
RequestMutator = Callable[[Obj, AdmissionRequest], Obj]
Warner = Callable[[Obj, AdmissionRequest], Iterable[str]]
"""(the result of a mutator, request) to the warnings for the user."""
Validator = Callable[
    [Obj | None, Obj | None, AdmissionRequest], Sequence[FieldError] | ValidationResult
]
"""(new, old, request) to the broken rules."""
AdmissionHandler = Callable[[AdmissionRequest], Obj]
"""A request to the `response` of the review, without its uid."""


def parse_request(raw: Mapping[str, Any]) -> AdmissionRequest:
    """The `request` of a review.

    Raises:
        KeyError: it has no uid or operation.
    """
    kind, resource = raw.get("kind") or {}, raw.get("resource") or {}
    return AdmissionRequest(
        uid=raw["uid"],
        operation=raw["operation"],
        group=kind.get("group") or "",
        version=kind.get("version") or "",
        kind=kind.get("kind") or "",
        resource=resource.get("resource") or "",
        subresource=raw.get("subResource") or "",
        namespace=raw.get("namespace") or "",
        name=raw.get("name") or "",
        object=raw.get("object"),
        old_object=raw.get("oldObject"),
        user=raw.get("userInfo") or {},
        dry_run=bool(raw.get("dryRun")),
        options=raw.get("options") or {},
    )


def mutating(
    mutator: Mutator | RequestMutator,
    *,
    with_request: bool = False,
    pure: bool = False,
    warn: Warner | None = None,
) -> AdmissionHandler:
    """A handler that answers with the patch from the object to the result of `mutator`.

    Deletions pass without a call. An unchanged object gives no patch. `InvalidObject` and
    `ApiError` raised by the mutator deny the request.

    Args:
        mutator: the pure function.
        with_request: whether it takes the request as second argument.
        pure: whether it never changes its argument, which then is not copied.
        warn: returns warnings about the result.
    """

    @functools.wraps(mutator)
    def handle(request: AdmissionRequest) -> Obj:
        if request.object is None or request.operation in {"DELETE", "CONNECT"}:
            return {"allowed": True}
        given = request.object if pure else copy.deepcopy(request.object)
        try:
            made = mutator(given, request) if with_request else mutator(given)  # type: ignore[call-arg]
        except (InvalidObject, ApiError) as error:
            return denied(error)
        answer: Obj = {"allowed": True}
        warnings = () if warn is None else [*warn(made, request)]
        if warnings:
            answer["warnings"] = shortened(warnings)
        patch = list(diff_json_patch(request.object, made))
        if not patch:
            return answer
        encoded = base64.b64encode(orjson.dumps(patch)).decode()
        return {**answer, "patchType": "JSONPatch", "patch": encoded}

    return handle


def validating(validator: Validator) -> AdmissionHandler:
    """A handler that denies the request when `validator` finds a broken rule."""

    @functools.wraps(validator)
    def handle(request: AdmissionRequest) -> Obj:
        if request.operation == "CONNECT":
            return {"allowed": True}
        try:
            reply = validator(request.object, request.old_object, request)
        except (InvalidObject, ApiError) as error:
            return denied(error)
        verdict = reply if isinstance(reply, ValidationResult) else ValidationResult(reply)
        if verdict.errors:
            answer = denied(Forbidden(aggregate(verdict.errors)))
        else:
            answer = {"allowed": True}
        if verdict.warnings:
            answer["warnings"] = shortened(verdict.warnings)
        return answer

    return handle


def aggregate(errors: Iterable[FieldError]) -> str:
    """Errors as one text, in the form of Kubernetes: alone, or in brackets; each text once."""
    texts = list(dict.fromkeys(str(error) for error in errors))
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"


def denied(error: InvalidObject | ApiError) -> Obj:
    """The response that refuses a request."""
    if isinstance(error, InvalidObject):
        causes = [
            {"reason": each.reason, "message": each.message, "field": each.path}
            for each in error.errors
        ]
        error = Invalid(str(error), details={"kind": error.kind, "causes": causes})
    return {"allowed": False, "status": error.status()}


def shortened(warnings: Iterable[str]) -> list[str]:
    """Warnings within the limits of HTTP headers."""
    kept, left = [], MAX_WARNINGS
    for warning in warnings:
        text = warning if len(warning) <= MAX_WARNING else warning[: MAX_WARNING - 3] + "..."
        left -= len(text)
        if left < 0:
            break
        kept.append(text)
    return kept
