"""Which taints a pod tolerates."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kueuelib.api.core import NO_EXECUTE, NO_SCHEDULE, Taint, Toleration


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Whether a toleration covers a taint; empty effect and empty key stand for all."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return toleration.operator in ("", "Equal") and toleration.value == taint.value


def untolerated(
    taints: Iterable[Taint],
    tolerations: Sequence[Toleration],
    effects: Sequence[str] = (NO_SCHEDULE, NO_EXECUTE),
) -> Taint | None:
    """The first taint with one of the effects that no toleration covers, or None."""
    for taint in taints:
        if taint.effect in effects and not any(tolerates(one, taint) for one in tolerations):
            return taint
    return None
