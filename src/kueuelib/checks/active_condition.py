"""The Active condition of AdmissionChecks, which their own controller writes (KEP-993)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kueuelib.api.meta import Obj, ObjectKey, find_condition, format_time, key_of
from kueuelib.api.names import ACTIVE
from kueuelib.checks.parameters import UNSETTLED, ParameterSource
from kueuelib.errors import NotFound
from kueuelib.runtime.client import Client
from kueuelib.runtime.clock import SYSTEM_CLOCK, Clock
from kueuelib.runtime.controller import DONE, Result
from kueuelib.runtime.informer import Informer
from kueuelib.runtime.queries import PatchType

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
    wanted = {
        "status": "False" if problem else "True",
        "reason": reason if problem else ACTIVE,
        "message": problem or "The admission check is active",
        "observedGeneration": check["metadata"].get("generation", 0),
    }
    if all(old.get(name, 0) == value for name, value in wanted.items()):
        return None
    kept = old.get("lastTransitionTime") if old.get("status") == wanted["status"] else None
    return {"type": ACTIVE, **wanted, "lastTransitionTime": kept or format_time(now)}


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
