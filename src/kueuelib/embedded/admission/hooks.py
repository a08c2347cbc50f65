"""Compiled webhook configurations: which hook wants which request."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs

from kueuelib.api.meta import Obj, labels_of
from kueuelib.embedded.admission.plugin import AdmissionRequest, Operation
from kueuelib.embedded.registry.kind import Kind
from kueuelib.machinery.selectors import Selector, from_label_selector

DEFAULT_TIMEOUT = 10


@attrs.frozen
class HookRule:
    """One entry of `rules`; `*` stands for anything."""

    operations: frozenset[str]
    groups: frozenset[str]
    versions: frozenset[str]
    resources: tuple[str, ...]
    scope: str

    def matches(
        self, operation: str, kind: Kind, version: str, subresource: str, *, scoped: bool
    ) -> bool:
        """Whether it matches a request at a version."""
        return (
            ("*" in self.operations or operation in self.operations)
            and ("*" in self.groups or kind.group in self.groups)
            and ("*" in self.versions or version in self.versions)
            and (self.scope == "*" or (self.scope == "Namespaced") == scoped)
            and any(_means(each, kind.plural, subresource) for each in self.resources)
        )


def _means(pattern: str, plural: str, subresource: str) -> bool:
    resource, slash, sub = pattern.partition("/")
    if resource not in ("*", plural):
        return False
    if not slash:
        return not subresource
    return sub == "*" or (bool(subresource) and sub == subresource)


@attrs.frozen(eq=False)
class Hook:
    """One webhook.

    Attributes:
        name: its name in messages.
        client: its `clientConfig`.
        rules: which requests it wants.
        namespaces: which namespaces.
        objects: which objects.
        ignore: whether a failing hook lets the request pass.
        timeout: seconds.
        equivalent: whether other versions of the same kind match as well.
        dry: whether it may be called on a dry run.
        again: whether it is called again after later hooks have changed the object.
        review: the AdmissionReview version it speaks.
        mutating: whether it may change objects.
        conditions: expressions that must all be true (`cel.conditions.Condition`).
    """

    name: str
    client: Mapping[str, Any]
    rules: tuple[HookRule, ...]
    namespaces: Selector
    objects: Selector
    ignore: bool
    timeout: float
    equivalent: bool
    dry: bool
    again: bool
    review: str
    mutating: bool
    conditions: tuple[Any, ...] = ()

    def version_for(
        self, operation: Operation, kind: Kind, version: str, subresource: str
    ) -> str | None:
        """The version at which the hook wants a request; None if it does not want it."""
        scoped = kind.namespaced
        versions: Sequence[str] = (version,)
        if self.equivalent:
            others = [name for name, each in kind.versions.items() if each.served]
            versions = (version, *(name for name in others if name != version))
        for candidate in versions:
            for rule in self.rules:
                if rule.matches(operation, kind, candidate, subresource, scoped=scoped):
                    return candidate
        return None

    def wants(self, kind: Kind, request: AdmissionRequest, namespace: Obj | None) -> bool:
        """Whether the selectors of the hook match the request.

        Args:
            kind: of the object.
            request: the request.
            namespace: the namespace of the object, None if it has none or it is unknown.
        """
        if not self.objects.everything and not any(
            obj is not None and self.objects.matches(labels_of(obj))
            for obj in (request.obj, request.old)
        ):
            return False
        if self.namespaces.everything:
            return True
        if kind.kind == "Namespace" and not kind.group:
            own = request.old if request.subresource or request.obj is None else request.obj
            return own is not None and self.namespaces.matches(labels_of(own))
        if not kind.namespaced:
            return True
        return self.namespaces.matches(labels_of(namespace or {}))


def compile_hooks(configurations: Iterator[Obj], *, mutating: bool) -> list[Hook]:
    """The hooks of all configurations, in the order they are called."""
    return [
        _compile(hook, mutating=mutating)
        for configuration in configurations
        for hook in configuration.get("webhooks") or ()
    ]


def _compile(hook: Mapping[str, Any], *, mutating: bool) -> Hook:
    rules = tuple(
        HookRule(
            frozenset(rule.get("operations") or ()),
            frozenset(rule.get("apiGroups") or ()),
            frozenset(rule.get("apiVersions") or ()),
            tuple(rule.get("resources") or ()),
            rule.get("scope") or "*",
        )
        for rule in hook.get("rules") or ()
    )
    spoken = hook.get("admissionReviewVersions") or ["v1"]
    conditions: tuple[Any, ...] = ()
    if hook.get("matchConditions"):
        from kueuelib.embedded.cel.conditions import compile_conditions

        conditions = compile_conditions(hook["matchConditions"])
    return Hook(
        name=hook["name"],
        client=hook.get("clientConfig") or {},
        rules=rules,
        namespaces=from_label_selector(hook.get("namespaceSelector") or {}),
        objects=from_label_selector(hook.get("objectSelector") or {}),
        ignore=hook.get("failurePolicy") == "Ignore",
        timeout=float(hook.get("timeoutSeconds") or DEFAULT_TIMEOUT),
        equivalent=hook.get("matchPolicy") != "Exact",
        dry=hook.get("sideEffects") in ("None", "NoneOnDryRun"),
        again=hook.get("reinvocationPolicy") == "IfNeeded",
        review=next((known for known in ("v1", "v1beta1") if known in spoken), "v1"),
        mutating=mutating,
        conditions=conditions,
    )
