"""Webhooks of an operator: how they answer, and how the API server finds them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, wraps
from typing import Any

from kueuelib.api.definitions import converted, crd_of
from kueuelib.api.forms import Typed, raw_of, resource_of, typed_of
from kueuelib.api.kinds import CRDS, MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS
from kueuelib.api.meta import KubeObject, Obj, Resource
from kueuelib.api.patch import diff_merge_patch, merge_patch
from kueuelib.errors import ConfigError, FieldError
from kueuelib.runtime.operator.declaration import Operator, OperatorWebhook, name_of
from kueuelib.runtime.webhook.admission import (
    AdmissionRequest,
    Mutator,
    ValidationResult,
    Validator,
)
from kueuelib.runtime.webhook.server import WebhookServer
from kueuelib.runtime.webhook.trust import Trusting

TIMEOUT_SECONDS = 10
"""Seconds that the API server waits for an answer."""
ClientConfig = Callable[[str], Obj]
"""From a path to the raw `clientConfig` by which the API server reaches it."""


def serve_hooks(operator: Operator, server: WebhookServer) -> None:
    """Answer admission and conversion of an operator's kinds."""
    for hook in operator.hooks:
        if hook.mutating:
            server.mutate(hook.path, _mutator(hook))
        else:
            server.validate(hook.path, _validator(hook))
    for definition in operator.definitions:
        if definition.versions:
            path = conversion_path(definition.resource)
            server.convert(path, partial(converted, definition))


def _mutator(hook: OperatorWebhook) -> Mutator:
    kind = hook.kind

    def checked(answer: Any, expected: type, fix: str) -> Any:
        if isinstance(answer, expected):
            return answer
        raise ConfigError(name_of(hook.function), f"returned {answer!r:.60}", fix)

    @wraps(hook.function)
    def mutate(obj: Obj) -> Obj:
        """Patch what differs; a field that only changes its form when encoded again stays."""
        if isinstance(kind, Resource):
            made: Obj = checked(hook.function(obj), dict, "return the whole raw object")
            return made
        given = typed_of(kind, obj)
        before = raw_of(given)  # the function may change a model
        changed = "its evolve(...)" if issubclass(kind, KubeObject) else "a copy of it"
        fix = f"return a {kind.__name__}, such as the given one or {changed}"
        completed: Typed = checked(hook.function(given), kind, fix)
        return dict(merge_patch(obj, diff_merge_patch(before, raw_of(completed))))

    return mutate


def _validator(hook: OperatorWebhook) -> Validator:
    kind = hook.kind

    def judged(answer: object) -> Sequence[FieldError] | ValidationResult:
        if isinstance(answer, ValidationResult):
            return answer
        if isinstance(answer, Sequence) and all(isinstance(each, FieldError) for each in answer):
            return answer
        problem = f"returned {answer!r:.60}"
        fix = "return a list of FieldError, or a ValidationResult"
        raise ConfigError(name_of(hook.function), problem, fix)

    def value(obj: Obj | None) -> Typed | Obj | None:
        return obj if obj is None or isinstance(kind, Resource) else typed_of(kind, obj)

    @wraps(hook.function)
    def validate(
        new: Obj | None, old: Obj | None, request: AdmissionRequest
    ) -> Sequence[FieldError] | ValidationResult:
        return judged(hook.function(value(new), value(old), request))

    return validate


def conversion_path(resource: Resource) -> str:
    """Where the conversion of a kind is served."""
    return f"/convert-{resource.plural}.{resource.group}"


def definitions(operator: Operator, client_config: ClientConfig) -> list[Obj]:
    """The CustomResourceDefinitions of an operator."""
    return [
        crd_of(each.cls, client_config(conversion_path(each.resource)))
        for each in operator.definitions
    ]


def hook_configurations(operator: Operator, client_config: ClientConfig) -> list[Obj]:
    """The webhook configurations of an operator; none without webhooks."""
    made = []
    for resource, mutating in ((MUTATING_WEBHOOKS, True), (VALIDATING_WEBHOOKS, False)):
        entries = [
            _entry(hook, client_config) for hook in operator.hooks if hook.mutating is mutating
        ]
        if entries:
            made.append(resource.new(operator.name, webhooks=entries))
    return made


def _entry(hook: OperatorWebhook, client_config: ClientConfig) -> Obj:
    resource = resource_of(hook.kind)
    rule = {
        "apiGroups": [resource.group],
        "apiVersions": [resource.version],
        "resources": [resource.plural],
        "operations": list(hook.operations),
        "scope": "*",
    }
    verb = "default" if hook.mutating else "validate"
    selector = {"objectSelector": dict(hook.object_selector)} if hook.object_selector else {}
    return {
        "name": f"{verb}.{resource.plural}.{resource.group or 'core.k8s.io'}",
        "clientConfig": client_config(hook.path),
        "rules": [rule],
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "timeoutSeconds": TIMEOUT_SECONDS,
        "failurePolicy": "Fail",
        **selector,
    }


def trusting(operator: Operator) -> list[Trusting]:
    """The objects that carry the authority of the operator's certificate."""
    objects = [
        Trusting(resource, operator.name)
        for resource, mutating in ((MUTATING_WEBHOOKS, True), (VALIDATING_WEBHOOKS, False))
        if any(hook.mutating is mutating for hook in operator.hooks)
    ]
    for definition in operator.definitions:
        if definition.versions:
            resource = definition.resource
            name, path = f"{resource.plural}.{resource.group}", conversion_path(resource)
            objects.append(Trusting(CRDS, name, path=path))
    return objects
