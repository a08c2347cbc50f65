"""Plug-ins and webhooks: which ones are called, and the effects of their answers."""

from __future__ import annotations

import base64
import binascii
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs
import orjson

from kueuelib.api.kinds import MUTATING_WEBHOOKS, NAMESPACES, VALIDATING_WEBHOOKS
from kueuelib.api.meta import Obj, ObjectKey, Resource, labels_of
from kueuelib.embedded import failures
from kueuelib.embedded.access.attributes import AlwaysAllow, Attributes, Authorizer
from kueuelib.embedded.access.reviews import user_info
from kueuelib.embedded.admission.hook_client import gather_first_failure
from kueuelib.embedded.admission.plugin import AdmissionAttributes, AdmissionPlugin, Operation
from kueuelib.embedded.committing import Commits
from kueuelib.embedded.conversion import Converter, HookCaller, HookFailed
from kueuelib.embedded.decoding import check_metadata, redefine
from kueuelib.embedded.patches import json_patch
from kueuelib.embedded.registry.kinds import Kind
from kueuelib.embedded.storage import Storage, StorageEvent
from kueuelib.errors import ApiError, BadRequest, ServerError
from kueuelib.machinery.selectors import Selector, from_label_selector

# ---- compiled webhook configurations: which hook wants which request -----------------------------

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
class CompiledWebhook:
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

    def wants(self, kind: Kind, request: AdmissionAttributes, namespace: Obj | None) -> bool:
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


def compile_hooks(configurations: Iterator[Obj], *, mutating: bool) -> list[CompiledWebhook]:
    """The hooks of all configurations, in the order they are called."""
    return [
        _compile(hook, mutating=mutating)
        for configuration in configurations
        for hook in configuration.get("webhooks") or ()
    ]


def _compile(hook: Mapping[str, Any], *, mutating: bool) -> CompiledWebhook:
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
        from kueuelib.embedded.admission.hook_rules import compile_conditions

        conditions = compile_conditions(hook["matchConditions"])
    return CompiledWebhook(
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


# --------------------------------------------------------------------------------------------------

EXEMPT = frozenset((MUTATING_WEBHOOKS.group_kind, VALIDATING_WEBHOOKS.group_kind))
Call = tuple[CompiledWebhook, str]
"""A hook and the version at which it wants the object."""


@attrs.frozen(eq=False)
class StoredObjects:
    """The `StoreReader` of the storage for plug-ins."""

    _storage: Storage

    def get(self, resource: Resource, key: ObjectKey) -> Obj | None:
        """The object at its stored version, or None."""
        entry = self._storage.table(f"{resource.plural}.{resource.group}").get(key)
        return None if entry is None else entry.obj()

    def items(self, resource: Resource, namespace: str = "") -> Iterator[Obj]:
        """All objects of the kind, decoded one by one."""
        table = self._storage.table(f"{resource.plural}.{resource.group}")
        return (entry.obj() for entry in table.entries(namespace))


class WebhookChain:
    """Calls the webhooks of the stored configurations."""

    def __init__(
        self, hooks: HookCaller, reader: StoredObjects, converter: Converter, commits: Commits
    ) -> None:
        self.authorizer: Authorizer = AlwaysAllow()
        """The authorizer of match conditions; a server with RBAC replaces it."""
        self._hooks = hooks
        self._reader = reader
        self._converter = converter
        self._compiled: dict[Resource, list[CompiledWebhook]] = {}
        self._known: dict[tuple[Any, ...], list[Call]] = {}
        commits.listen(self._notice)

    def _notice(self, kind: Kind, _: StorageEvent) -> None:
        if (kind.group, kind.kind) in EXEMPT:
            self._compiled.clear()
            self._known.clear()

    # ---- the two passes

    async def mutate(self, kind: Kind, request: AdmissionAttributes) -> bool:
        """Lets webhooks change `request.obj`; returns whether one did."""
        calls = self._calls(MUTATING_WEBHOOKS, kind, request)
        if not calls:
            return False
        namespace = self._namespace(kind, request)
        changed = False
        seen: list[tuple[Call, bytes]] = []
        for call in calls:
            if not await self._meant(kind, request, namespace, call):
                continue
            changed |= await self._mutate(kind, request, call)
            if call[0].again:
                seen.append((call, orjson.dumps(request.obj)))
        for call, before in seen:
            if orjson.dumps(request.obj) != before and await self._meant(
                kind, request, namespace, call
            ):
                changed |= await self._mutate(kind, request, call)
        return changed

    async def validate(self, kind: Kind, request: AdmissionAttributes) -> None:
        """Lets webhooks refuse the request; all are called in parallel."""
        calls = self._calls(VALIDATING_WEBHOOKS, kind, request)
        if not calls:
            return
        namespace = self._namespace(kind, request)
        wanted = [call for call in calls if await self._meant(kind, request, namespace, call)]
        if len(wanted) == 1:
            await self._ask(kind, request, wanted[0])
        elif wanted:
            await gather_first_failure([self._ask(kind, request, call) for call in wanted])

    def _calls(self, source: Resource, kind: Kind, request: AdmissionAttributes) -> list[Call]:
        if (kind.group, kind.kind) in EXEMPT:
            return []
        version = request.resource.version
        key = (source, kind, version, request.subresource, request.operation)
        calls = self._known.get(key)
        if calls is None:
            if source not in self._compiled:
                self._compiled[source] = compile_hooks(
                    self._reader.items(source), mutating=source is MUTATING_WEBHOOKS
                )
            calls = []
            for hook in self._compiled[source]:
                at = hook.version_for(request.operation, kind, version, request.subresource)
                if at is not None:
                    calls.append((hook, at))
            self._known[key] = calls
        return calls

    def _namespace(self, kind: Kind, request: AdmissionAttributes) -> Obj | None:
        if not kind.namespaced:
            return None
        return self._reader.get(NAMESPACES, ObjectKey("", request.key.namespace))

    async def _meant(
        self, kind: Kind, request: AdmissionAttributes, namespace: Obj | None, call: Call
    ) -> bool:
        """Whether the selectors and conditions of a hook match the request."""
        hook, version = call
        if not hook.wants(kind, request, namespace):
            return False
        if not hook.conditions:
            return True
        from kueuelib.embedded.admission.hook_rules import ConditionFailed, fulfilled
        from kueuelib.embedded.cel.authorizing import AuthorizerValue

        review = await self._review(kind, request, version, "")
        obj, old = review.pop("object"), review.pop("oldObject")
        wish = Attributes(
            "",
            kind.group,
            kind.plural,
            request.subresource,
            request.key.namespace,
            request.key.name,
        )
        authorizer = AuthorizerValue(self.authorizer, request.caller, wish)
        try:
            return fulfilled(hook.conditions, obj, old, review, authorizer)
        except ConditionFailed as error:
            if hook.ignore:
                return False
            raise failures.forbidden(kind, request.key.name, str(error)) from error

    # ---- one call

    async def _mutate(self, kind: Kind, request: AdmissionAttributes, call: Call) -> bool:
        hook, version = call
        response = await self._ask(kind, request, call)
        patch, given = response.get("patch"), request.obj
        if not patch:
            return False
        if given is None:
            raise ServerError(
                f'Internal error occurred: admission webhook "{hook.name}" attempted to modify '
                "the object, which is not supported for this operation"
            )
        failed = (
            f'Internal error occurred: webhook "{hook.name}" returned response with a bad patch'
        )
        if response.get("patchType", "JSONPatch") != "JSONPatch":
            raise ServerError(f"{failed}: unsupported patch type {response.get('patchType')!r}")
        try:
            operations = orjson.loads(base64.b64decode(patch))
            if not request.foreign:
                given = await self._converter.convert_one(kind, given, version)
            new = json_patch(given, operations)
        except (binascii.Error, ValueError, ApiError) as error:
            raise ServerError(f"{failed}: {error.__cause__ or error}") from error
        if any(new.get(each) != given[each] for each in ("apiVersion", "kind")):
            raise ServerError(f"{failed}: the result is not a {given['kind']}")
        if request.foreign:
            request.obj = new
            return True
        asked = request.resource.version
        request.obj = await self._converter.convert_one(kind, new, asked)
        check_metadata(kind, kind.versions[asked], request.obj)
        redefine(kind, kind.versions[asked], request.obj)
        return True

    async def _ask(self, kind: Kind, request: AdmissionAttributes, call: Call) -> Mapping[str, Any]:
        """The response of a hook that allows the request; empty if its failure is ignored."""
        hook, version = call
        if request.dry_run and not hook.dry:
            raise BadRequest(f'admission webhook "{hook.name}" does not support dry run')
        uid = str(uuid.uuid4())
        body = {
            "kind": "AdmissionReview",
            "apiVersion": f"admission.k8s.io/{hook.review}",
            "request": await self._review(kind, request, version, uid),
        }
        try:
            answer = await self._hooks.call(hook.client, body, seconds=hook.timeout)
        except HookFailed as error:
            if hook.ignore:
                return {}
            raise ServerError(
                f'Internal error occurred: failed calling webhook "{hook.name}": '
                f"failed to call webhook: {error}"
            ) from error
        response, problem = _response(answer, hook, uid)
        if problem and hook.ignore:
            return {}
        if problem:
            raise ServerError(
                f'Internal error occurred: failed calling webhook "{hook.name}": '
                f"received invalid webhook response: {problem}"
            )
        for warning in response.get("warnings") or ():
            request.warnings.append(str(warning))
        if response.get("allowed") is not True:
            raise _denied(hook, response.get("status"))
        return response

    async def _review(
        self, kind: Kind, request: AdmissionAttributes, version: str, uid: str
    ) -> Obj:
        async def at(obj: Obj | None) -> Obj | None:
            if obj is None or request.foreign:
                return obj
            return await self._converter.convert_one(kind, obj, version)

        asked = request.resource.version
        shown = {"group": kind.group, "version": version, "kind": kind.kind}
        wanted = {**shown, "version": asked}
        if request.foreign:
            group, _, named = request.new["apiVersion"].rpartition("/")
            shown = wanted = {"group": group, "version": named, "kind": request.new["kind"]}
        review: Obj = {
            "uid": uid,
            "kind": shown,
            "resource": {"group": kind.group, "version": version, "resource": kind.plural},
            "requestKind": wanted,
            "requestResource": {"group": kind.group, "version": asked, "resource": kind.plural},
            "operation": str(request.operation),
            "userInfo": {"groups": [], **user_info(request.caller)},
            "object": await at(request.obj),
            "oldObject": await at(request.old),
            "dryRun": request.dry_run,
            "options": dict(request.options) or None,
        }
        if request.subresource:
            review["subResource"] = review["requestSubResource"] = request.subresource
        if request.key.name:
            review["name"] = request.key.name
        if request.key.namespace:
            review["namespace"] = request.key.namespace
        return review


def _response(answer: Obj, hook: CompiledWebhook, uid: str) -> tuple[Obj, str]:
    """The response in an answer, and what is wrong with it."""
    response = answer.get("response")
    if not isinstance(response, dict):
        return {}, "webhook response was absent"
    if not isinstance(response.get("allowed", False), bool):
        return {}, "response.allowed is not of type bool"
    return response, _problem(answer, response, hook, uid) if hook.review == "v1" else ""


def _problem(answer: Obj, response: Obj, hook: CompiledWebhook, uid: str) -> str:
    """What is wrong with a response of v1; those of older hooks are not checked."""
    given = response.get("uid") or ""
    if given != uid:
        return f'expected response.uid="{uid}", got "{given}"'
    group, _, version = str(answer.get("apiVersion") or "").rpartition("/")
    if (group, version, answer.get("kind")) != ("admission.k8s.io", "v1", "AdmissionReview"):
        shown = f"{group}/{version}, Kind={answer.get('kind') or ''}"
        expected = "admission.k8s.io/v1, Kind=AdmissionReview"
        return f"expected webhook response of {expected}, got {shown}"
    patch, kind = response.get("patch"), response.get("patchType")
    if not hook.mutating and (patch or kind is not None):
        return f"validating webhook may not return response.{'patch' if patch else 'patchType'}"
    if patch and kind is None:
        return "webhook returned response.patch but not response.patchType"
    if not patch and kind is not None:
        return "webhook returned response.patchType but not response.patch"
    return 'webhook returned invalid response.patchType of ""' if kind == "" else ""


def _denied(hook: CompiledWebhook, given: Any) -> ApiError:
    """The error for the client after a refusal."""
    status: Mapping[str, Any] = given if isinstance(given, dict) else {}
    why = status.get("message") or status.get("reason")
    text = f'admission webhook "{hook.name}" denied the request'
    message = f"{text}: {why}" if why else f"{text} without explanation"
    code = status.get("code")
    if not isinstance(code, int) or code < 400:
        code = 400
    error = ApiError(message, code=code, reason=str(status.get("reason") or ""))
    if isinstance(status.get("details"), dict):
        error.details = dict(status["details"])
    return error


# ---- plug-ins, then webhooks ---------------------------------------------------------------------


class Chain:
    """Everything that may change or refuse a write, in the order of kube-apiserver."""

    def __init__(
        self, plugins: Sequence[AdmissionPlugin], reader: StoredObjects, webhooks: WebhookChain
    ) -> None:
        self._plugins = tuple(plugins)
        self._reader = reader
        self._webhooks = webhooks

    async def mutate(self, kind: Kind, request: AdmissionAttributes) -> bool:
        """Plug-ins, then mutating webhooks; returns whether a webhook changed the object.

        Raises:
            ApiError: the write is refused.
        """
        for plugin in self._plugins:
            if plugin.handles(request):
                plugin.admit(request, self._reader)
        return await self._webhooks.mutate(kind, request)

    async def validate(self, kind: Kind, request: AdmissionAttributes) -> None:
        """Plug-ins, then validating webhooks.

        Raises:
            ApiError: the write is refused.
        """
        for plugin in self._plugins:
            if plugin.handles(request):
                plugin.validate(request, self._reader)
        await self._webhooks.validate(kind, request)
