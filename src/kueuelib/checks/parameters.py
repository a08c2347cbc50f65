"""The objects that configure checks, and the condition that says whether a check is active."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs

from kueuelib.api.meta import Obj, ObjectKey, Resource, find_condition, key_of, raw_condition
from kueuelib.api.names import ACTIVE
from kueuelib.errors import NotFound
from kueuelib.machinery.store import Delta
from kueuelib.runtime.client import Client
from kueuelib.runtime.clock import SYSTEM_CLOCK, Clock
from kueuelib.runtime.controller import DONE, Result
from kueuelib.runtime.informer import Informer
from kueuelib.runtime.queries import PatchType

UNSETTLED = 0.5
"""Seconds between looks after a start, until it is known which objects there are."""
REFUSED_FOR = 5.0
"""Seconds after a start for which a server that refuses the objects is asked again, before that is
written: while a manager replaces another one, roles and definitions are written again.
"""


@attrs.frozen
class ParameterProblem:
    """Why the parameters of an AdmissionCheck cannot be used.

    Attributes:
        text: a sentence for people.
    """

    text: str


class ParameterSource:
    """Follows the parameters objects of one check; a part of a `Manager`.

    It has its own informer, and nothing waits for it. While the kind is not installed, the
    AdmissionChecks are inactive and everything else works.

    Args:
        client: lists and watches.
        resource: the kind, None for a check without parameters.
        clock: monotonic time.
    """

    def __init__(
        self, client: Client, resource: Resource | None, *, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self.resource = resource
        self._informer = None if resource is None else Informer(client, resource, clock=clock)
        self._clock = clock
        self._since = clock.monotonic()
        self._listeners: list[Callable[[ObjectKey], None]] = []
        self._gone: dict[ObjectKey, Obj] = {}

    def subscribe(self, listener: Callable[[ObjectKey], None]) -> None:
        """Calls `listener` with the key of every parameters object whose spec changes.

        Also once, with an empty key, when the objects are first known.
        """
        self._listeners.append(listener)

    async def run(self, ready: Callable[[], None]) -> None:
        """Follow the objects until cancelled."""
        self._since = self._clock.monotonic()
        ready()
        if self._informer is None:
            return
        self._informer.add_handler(self._on_change)
        await self._informer.run(lambda: self._notify(ObjectKey("", "")))

    def _on_change(self, delta: Delta[Obj]) -> None:
        if delta.new is not None:
            self._gone.pop(delta.key, None)
        elif delta.old is not None:
            self._gone[delta.key] = delta.old
        if delta.old is None or delta.new is None or content(delta.old) != content(delta.new):
            self._notify(delta.key)

    def _notify(self, key: ObjectKey) -> None:
        for listener in self._listeners:
            listener(key)

    @property
    def settled(self) -> bool:
        """Whether the objects are known, or that they cannot be read; not yet after a start."""
        if self._informer is None or self._informer.synced:
            return True
        asked = self._clock.monotonic() - self._since
        return self._informer.settled and asked >= REFUSED_FOR

    def problem(self, check: Mapping[str, Any]) -> ParameterProblem | None:
        """What is wrong with the reference of a raw AdmissionCheck, or None.

        A namespaced object may be missing: that concerns the workloads of its namespace only.
        """
        ref = (check.get("spec") or {}).get("parameters")
        if self.resource is None or self._informer is None:
            return None
        kind, group = self.resource.kind, self.resource.group
        if not ref:
            return ParameterProblem(
                f"spec.parameters is missing: this check needs a {kind}.{group}"
            )
        if (ref.get("kind"), ref.get("apiGroup", "")) != (kind, group):
            actual = f"{ref.get('kind')}.{ref.get('apiGroup', '')}"
            return ParameterProblem(
                f"spec.parameters refers to a {actual}, this check needs a {kind}.{group}"
            )
        if not self._informer.synced:
            return ParameterProblem(
                f"{self.resource.plural}.{group} cannot be read: is it installed?"
            )
        if not self.resource.namespaced and self._find(ref["name"], "") is None:
            return ParameterProblem(f"{kind} {ref['name']} does not exist")
        return None

    def find(
        self, check: Mapping[str, Any], namespace: str, *, accepted: bool = False
    ) -> Obj | ParameterProblem | None:
        """The parameters of a raw AdmissionCheck for workloads of a namespace.

        None when the check takes none, `ParameterProblem` when they cannot be used.

        Args:
            check: the AdmissionCheck.
            namespace: of the workload.
            accepted: whether it is about an admitted workload, which the check still watches. If
                the object was deleted since the process has started, its last state counts.
        """
        problem = self.problem(check)
        if self.resource is None:
            return problem
        ref = (check.get("spec") or {}).get("parameters") or {}
        key = ObjectKey(namespace if self.resource.namespaced else "", ref.get("name", ""))
        if accepted and key in self._gone:
            return self._gone[key]
        if problem is not None:
            return problem
        obj = self._find(key.name, key.namespace)
        return obj or ParameterProblem(
            f"{self.resource.kind} {key.name} does not exist in {namespace}"
        )

    def _find(self, name: str, namespace: str) -> Obj | None:
        assert self._informer is not None
        return self._informer.store.get(ObjectKey(namespace, name))


def content(parameters: Mapping[str, Any] | None) -> Any:
    """The part of a parameters object whose change triggers its checks.

    Status and metadata are left out; other top-level fields (a ConfigMap's `data`) count.
    """
    if parameters is None:
        return None
    return {
        name: value
        for name, value in parameters.items()
        if name not in ("metadata", "status", "apiVersion", "kind")
    }


# ---- the Active condition of AdmissionChecks, which their own controller writes (KEP-993) --------

BAD_PARAMETERS = "BadParametersRef"
NO_SIGN_OF_LIFE = "NoSignOfLife"


def active_condition(
    check: Mapping[str, Any], problem: str, now: float, reason: str = BAD_PARAMETERS
) -> Obj | None:
    """The condition that an AdmissionCheck should get; None if it has it already.

    Args:
        check: the raw AdmissionCheck.
        problem: why it cannot work; empty when it can.
        now: the transition time, seconds since the epoch.
        reason: of a problem, as one word.
    """
    old = find_condition((check.get("status") or {}).get("conditions"), ACTIVE)
    new = raw_condition(
        old,
        ACTIVE,
        not problem,
        reason if problem else ACTIVE,
        problem or "The admission check is active",
        now=now,
        generation=check["metadata"].get("generation"),
    )
    return None if new == old else new


class ActivityReconciler:
    """Keeps the Active condition of one controller's AdmissionChecks.

    Args:
        client: writes.
        checks: the informer of AdmissionChecks.
        controller_name: whose AdmissionChecks.
        parameters: checks whether references can be used.
        clock: stamps transitions.
    """

    def __init__(
        self,
        client: Client,
        checks: Informer,
        controller_name: str,
        parameters: ParameterSource,
        *,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._client = client
        self._checks = checks
        self._controller_name = controller_name
        self._parameters = parameters
        self._clock = clock

    async def reconcile(self, key: ObjectKey) -> Result:
        """Writes the condition of one AdmissionCheck, if it is ours and differs."""
        check = self._checks.store.get(key)
        if check is None or check["spec"].get("controllerName") != self._controller_name:
            return DONE
        if check["metadata"].get("deletionTimestamp"):
            return DONE
        if not self._parameters.settled:
            return Result(requeue_after=UNSETTLED)
        problem = self._parameters.problem(check)
        text = "" if problem is None else problem.text
        condition = active_condition(check, text, self._clock.now())
        if condition is not None:
            await write_condition(
                self._client,
                self._checks,
                check,
                condition,
                field_manager=self._controller_name[:128],
            )
        return DONE


async def write_condition(
    client: Client,
    checks: Informer,
    check: Obj,
    condition: Obj,
    *,
    field_manager: str | None = None,
) -> None:
    """Apply the Active condition of an AdmissionCheck, unless it is gone.

    Args:
        client: writes.
        checks: the informer of AdmissionChecks; it learns the answer.
        check: the raw AdmissionCheck.
        condition: the new condition.
        field_manager: the owner of the condition; the client's name when None.
    """
    meta = check["metadata"]
    body = {
        "apiVersion": check["apiVersion"],
        "kind": check["kind"],
        "metadata": {"name": meta["name"], "uid": meta["uid"]},
        "status": {"conditions": [condition]},
    }
    try:
        answer = await client.patch(
            checks.resource,
            key_of(check),
            body,
            PatchType.APPLY,
            subresource="status",
            field_manager=field_manager,
            force=True,
        )
    except NotFound:
        return
    checks.learn(answer)
