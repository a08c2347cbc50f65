"""Reviews of admission webhooks: checked, answered, and which of them are asked for.

Handlers are pure functions of raw objects. Nothing here waits or uses the network.
"""

from __future__ import annotations

import base64
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import NoneType
from typing import Any, Final

import attrs
import orjson

from kueuelib.api.meta import Obj, copied
from kueuelib.api.patch import diff_json_patch
from kueuelib.errors import ApiError, FieldError, Forbidden, Invalid, InvalidObject

# ---- checks a review before a handler works with it: types of fields, number of values -----------
# Shapes are structural schemas (OpenAPI v3 as CRDs use it), of which only types, required fields
# and minimal lengths of texts count here.

MAX_VALUES: Final = 600_000
"""The maximum number of objects, lists and further fields of a review: each takes memory when
decoded.
"""
MAX_CONTAINERS: Final = 150_000
VALUE_BYTES: Final = 64
CONTAINER_BYTES: Final = 160
"""The memory of a decoded value, and what an object or list takes in addition."""
MAX_BODY: Final = 7 * 1024 * 1024
"""Bytes of the largest review that is read."""
MAX_MEMORY: Final = 3 * MAX_BODY
"""Bytes that an admission review may take."""

Shape = dict[str, Any]
Shapes = Mapping[str, Shape]
"""The shape of an object by its `apiVersion`; an empty key stands for all other versions."""

_INT_OR_STRING: Final = "x-kubernetes-int-or-string"
_ANY_TYPE: Final = ""
_TYPES: Final[Mapping[str, tuple[frozenset[type], str]]] = {
    "object": (frozenset({dict}), "an object"),
    "array": (frozenset({list}), "a list"),
    "string": (frozenset({str}), "a text"),
    "integer": (frozenset({int}), "a whole number"),
    "number": (frozenset({int, float}), "a number"),
    "boolean": (frozenset({bool}), "true or false"),
    _INT_OR_STRING: (frozenset({int, str}), "a whole number or a text"),
    _ANY_TYPE: (frozenset({dict, list, str, int, float, bool, NoneType}), "JSON"),
}
"""The types of decoded values, and what to call them."""


@attrs.frozen
class ReviewShape:
    """A shape, made quick to check.

    Attributes:
        types: of the values that fit.
        words: what to call the types.
        plain: those of the types whose values fit whatever is inside.
        required: fields that must be there.
        fields: the forms of fields.
        further: the form of every field.
        items: the form of every item.
        needed: whether an empty text counts as missing.
        choices: the only texts that fit; None: all do.
    """

    types: frozenset[type]
    words: str
    plain: frozenset[type]
    required: tuple[str, ...] = ()
    fields: tuple[tuple[str, ReviewShape], ...] = ()
    further: ReviewShape | None = None
    items: ReviewShape | None = None
    needed: bool = False
    choices: tuple[str, ...] | None = None


Forms = Mapping[str, ReviewShape]
"""As `Shapes`."""


def form_of(shape: Shape) -> ReviewShape:
    """The form of a shape."""
    if shape.get(_INT_OR_STRING):
        types, words = _TYPES[_INT_OR_STRING]
        return ReviewShape(types, words, types)
    types, words = _TYPES[shape.get("type", _ANY_TYPE)]
    further, items = shape.get("additionalProperties"), shape.get("items")
    return ReviewShape(
        types,
        words,
        types if shape.keys() <= {"type"} else frozenset(),
        tuple(shape.get("required", ())),
        tuple((name, form_of(inner)) for name, inner in shape.get("properties", {}).items()),
        form_of(further) if further else None,
        form_of(items) if items else None,
        bool(shape.get("minLength")),
        tuple(shape["enum"]) if "enum" in shape else None,
    )


_TEXT: Final[Shape] = {"type": "string"}
_NEEDED: Final[Shape] = {"type": "string", "minLength": 1}
_ANYTHING: Final[Shape] = {"type": "object"}
_TEXTS: Final[Shape] = {"type": "array", "items": _TEXT}
_MAP: Final[Shape] = {"type": "object", "additionalProperties": _TEXT}


def _object(properties: Shapes, *required: str) -> Shape:
    return {"type": "object", "properties": properties, "required": required}


_OWNER: Final = _object(dict.fromkeys(("apiVersion", "kind", "name", "uid"), _TEXT))
_META: Final = _object(
    {
        **dict.fromkeys(("name", "generateName", "namespace", "uid"), _TEXT),
        **dict.fromkeys(("labels", "annotations"), _MAP),
        "finalizers": _TEXTS,
        "ownerReferences": {"type": "array", "items": _OWNER},
    }
)
_OBJECT: Final = _object(
    {
        **dict.fromkeys(("apiVersion", "kind"), _TEXT),
        **dict.fromkeys(("spec", "status"), _ANYTHING),
        "metadata": _META,
    }
)
"""The fields that every reviewed object has."""
_KIND: Final = _object(dict.fromkeys(("group", "version", "kind", "resource"), _TEXT))
_USER: Final = _object({"username": _TEXT, "uid": _TEXT, "groups": _TEXTS, "extra": _ANYTHING})
_ADMISSION: Final = _object(
    {
        **dict.fromkeys(("uid", "operation"), _NEEDED),
        **dict.fromkeys(("subResource", "namespace", "name"), _TEXT),
        **dict.fromkeys(("kind", "resource"), _KIND),
        **dict.fromkeys(("object", "oldObject"), _OBJECT),
        "userInfo": _USER,
        "options": _ANYTHING,
        "dryRun": {"type": "boolean"},
    },
    "uid",
    "operation",
)
_CONVERSION: Final = _object(
    {
        **dict.fromkeys(("uid", "desiredAPIVersion"), _NEEDED),
        "objects": {"type": "array", "items": {**_OBJECT, "required": ("metadata",)}},
    },
    "uid",
    "desiredAPIVersion",
)
_REVIEWS: Final[Forms] = {
    kind: form_of(_object({"apiVersion": _TEXT, "request": request}, "apiVersion", "request"))
    for kind, request in (("AdmissionReview", _ADMISSION), ("ConversionReview", _CONVERSION))
}
_OBJECTS_OF: Final[Mapping[str, tuple[str, ...]]] = {
    "CREATE": ("object",),
    "UPDATE": ("object", "oldObject"),
    "DELETE": ("oldObject",),
}


def is_too_much(body: bytes, kind: str) -> bool:
    """Whether a body has too many values, found before it is decoded.

    Args:
        body: of the request.
        kind: `AdmissionReview`, which has at most two objects, or `ConversionReview`.
    """
    if len(body) * (2 + VALUE_BYTES + CONTAINER_BYTES) <= MAX_MEMORY:  # whatever is inside
        return False
    containers = body.count(b"{") + body.count(b"[")
    values = containers + body.count(b",")
    if kind == "AdmissionReview":
        memory = 2 * len(body) + VALUE_BYTES * values + CONTAINER_BYTES * containers
        return memory > MAX_MEMORY
    return containers > MAX_CONTAINERS or values > MAX_VALUES


def types_of(schema: Shape, *, required: bool = False) -> Shape:
    """The types in a schema: the shape of objects that rules have not checked yet.

    Args:
        schema: structural.
        required: keep the fields that must be there, too.
    """
    shape: dict[str, Any] = {}
    for name, value in schema.items():
        if name in ("type", _INT_OR_STRING) or (required and name == "required"):
            shape[name] = value
        elif name == "properties":
            shape[name] = {
                each: types_of(inner, required=required) for each, inner in value.items()
            }
        elif name in ("items", "additionalProperties") and isinstance(value, dict):
            shape[name] = types_of(value, required=required)
    return shape


def shape_with(fields: Shapes, required: str = "") -> Shape:
    """The shape of objects that have these fields.

    Args:
        fields: their schemas, by path; what they require must be there.
        required: the path of a field that must be there.
    """
    shape: dict[str, Any] = {}
    for path, schema in fields.items():
        place = shape
        for name in path.split("."):
            place["type"] = "object"
            if path == required:
                place["required"] = [name]
            place = place.setdefault("properties", {}).setdefault(name, {})
        place.update(types_of(schema, required=True))
    return shape


def misfit(review: Any, kind: str) -> str:
    """What is wrong with a review, with the field; empty if it is fine.

    Args:
        review: a decoded body.
        kind: `AdmissionReview` or `ConversionReview`.
    """
    if not isinstance(review, dict) or review.get("kind") != kind:
        return f"send {'an' if kind.startswith('A') else 'a'} {kind}"
    if problem := _misfit(review, _REVIEWS[kind]):
        return problem.removeprefix(".")
    request = review["request"]
    for name in _OBJECTS_OF.get(request.get("operation", ""), ()):
        if request.get(name) is None:
            return f"request.{name} is missing"
        if request[name].get("metadata") is None:
            return f"request.{name}.metadata is missing"
    return ""


def misfit_of_objects(request: Mapping[str, Any], forms: Forms) -> str:
    """What is wrong with the objects of an admission review, with the field.

    Args:
        request: of a review without misfit.
        forms: of the objects; none: any object will do.
    """
    for name, path in (("object", ""), ("oldObject", "oldObject")):
        obj = request.get(name)
        if obj is None or not forms:
            continue
        form = forms.get(obj.get("apiVersion") or "", forms.get(""))
        if form is None:
            return f"{path}.apiVersion: {' or '.join(forms)} is expected".removeprefix(".")
        if problem := _misfit(obj, form):
            return f"{path}{problem}".removeprefix(".")
    return ""


def _misfit(value: Any, form: ReviewShape) -> str:
    """What is wrong with a value, after the path from it to the field; empty if it fits."""
    if type(value) not in form.types:
        return f": {form.words} is expected"
    if isinstance(value, dict):
        return _misfit_inside(value, form)
    if isinstance(value, list) and (inner := form.items):
        for i, each in enumerate(value):
            if type(each) not in inner.plain and (problem := _misfit(each, inner)):
                return f"[{i}]{problem}"
    if form.needed and not value:
        return " is missing"
    if form.choices is not None and value not in form.choices:
        return f": {' or '.join(form.choices)} is expected"
    return ""


def _misfit_inside(value: dict[str, Any], form: ReviewShape) -> str:
    for name in form.required:
        if value.get(name) is None:
            return f".{name} is missing"
    for name, inner in form.fields:
        each = value.get(name)
        if each is None or type(each) in inner.plain:  # most fields, without a call
            continue
        if problem := _misfit(each, inner):
            return f".{name}{problem}"
    if further := form.further:
        for name, each in value.items():
            if type(each) not in further.plain and (problem := _misfit(each, further)):
                return f"[{name}]{problem}"
    return ""


# ---- `matchConditions`: which requests the API server answers without asking a webhook -----------
# An API server evaluates the expressions (CEL) by itself, so a request that they exclude costs no
# call. Kubernetes 1.27 and older drop them and send every request.

NEW, OLD = "object", "oldObject"


@attrs.frozen
class WebhookEntry:
    """One entry of a webhook configuration.

    Attributes:
        mutating: whether it belongs to the mutating or the validating configuration.
        path: where the webhook server answers it.
        entry: the raw entry without its `clientConfig`.
    """

    mutating: bool
    path: str
    entry: Obj


def failing_closed(name: str) -> Obj:
    """The head of an entry without which no object of its rules is stored."""
    return {
        "name": name,
        "admissionReviewVersions": ["v1"],
        "failurePolicy": "Fail",
        "matchPolicy": "Equivalent",
        "sideEffects": "None",
    }


def condition(name: str, *alternatives: str) -> Obj:
    """One condition, of which one alternative has to hold.

    Args:
        name: of the condition; unique in its webhook.
        alternatives: expressions, joined by "or".
    """
    return {"name": name, "expression": " || ".join(alternatives)}


def of_others(user: str) -> Obj:
    """Requests of all users but one, for example the process that would be called."""
    return condition("of-others", f"request.userInfo.username != '{user}'")


def new_or_changed(*paths: str, new: Sequence[str] = (), more: Sequence[str] = ()) -> Obj:
    """New objects, and updates that change a field.

    Args:
        paths: of fields, for example `spec` or `metadata.labels`.
        new: expressions, of which one has to hold for a new object; none: every new object.
        more: expressions for updates that change none of the fields.
    """
    changes = [*map(changed, paths), *more]
    if not new:
        return condition("new-or-changed", IS_NEW, *changes)
    expression = f"{IS_NEW} ? {' || '.join(new)} : {' || '.join(changes)}"
    return condition("new-or-changed", expression)


IS_NEW = f"{OLD} == null"
"""Holds for an object that is created."""


def changed(path: str) -> str:
    """Holds when an update sets, removes or changes a field; absent and empty differ."""
    return f"{_value(NEW, path)} != {_value(OLD, path)}"


def unlike(path: str, prefix: str, values: Mapping[str, str]) -> str:
    """Holds for an object with another key, or another value, of labels or annotations.

    Args:
        path: of the labels or annotations.
        prefix: of the keys that count.
        values: what is expected: keys, and regular expressions that their values match.
    """
    field = f"{NEW}.{path}"
    fits = [f"key == '{key}' && {field}[key].matches(r'{text}')" for key, text in values.items()]
    other = f"key.startsWith('{prefix}')" + "".join(f" && !({each})" for each in fits)
    return f"{present(NEW, path)} && {field}.exists(key, {other})"


def present(variable: str, path: str) -> str:
    """Holds when an object has a field; its parents may be absent.

    Args:
        variable: `NEW` or `OLD`.
        path: of the field.
    """
    fields = path.split(".")
    return " && ".join(
        f"has({variable}.{'.'.join(fields[:depth])})" for depth in range(1, len(fields) + 1)
    )


def _value(variable: str, path: str) -> str:
    return f"({present(variable, path)} ? {variable}.{path} : null)"


# --------------------------------------------------------------------------------------------------

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
        given = request.object if pure else copied(request.object)
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
