"""Acts of users on an object while a manager writes it."""

from __future__ import annotations

from collections.abc import Iterable

from kueuelib.testing.storm.users import acts
from kueuelib.testing.storm.users.acts import Act, Draws

WORKLOADS = "workloads.kueue.x-k8s.io"
AT_ONCE = 0.01
"""Seconds between two acts that belong together."""
SOON = 0.5
"""The maximum number of seconds until an object is created again."""
BACK = (2.0, 30.0)
"""Seconds until a Workload is activated again."""

ANNOTATE, DELETE, AGAIN, DEACTIVATE, STRIP = "annotate", "delete", "again", "deactivate", "strip"
WAYS = {
    WORKLOADS: (ANNOTATE, DEACTIVATE, DEACTIVATE, STRIP, DELETE),
    "jobs.batch": (ANNOTATE, AGAIN, AGAIN, DELETE),
    "pods": (ANNOTATE, AGAIN, DELETE),
}
"""The possible acts on objects of a kind; one that is listed twice is twice as likely."""


def meddle(
    draws: Draws, label: str, target: tuple[str, str, str], before: Iterable[Act]
) -> tuple[Act, ...]:
    """Draws acts on an object; the times count from now.

    Args:
        draws: decisions.
        label: of this interference.
        target: resource, namespace and name of the object.
        before: all acts of the scenario, which contain its creation.
    """
    body = next((act.body for act in before if act.verb == acts.CREATE and _is(act, target)), None)
    way = draws.choice(f"{label}/way", WAYS[target[0]])
    if way == ANNOTATE:
        note = {"metadata": {"annotations": {"storm.example/meddled": label[-40:]}}}
        return (Act(0.0, f"{label}/annotate", acts.PATCH, *target, note),)
    if way == DEACTIVATE:
        back = draws.uniform(f"{label}/back", *BACK)
        return (
            Act(0.0, f"{label}/off", acts.PATCH, *target, {"spec": {"active": False}}),
            Act(back, f"{label}/on", acts.PATCH, *target, {"spec": {"active": True}}),
        )
    gone = Act(AT_ONCE, f"{label}/delete", acts.DELETE, *target)
    if way == STRIP:
        bare = {"metadata": {"finalizers": None}}
        return (Act(0.0, f"{label}/strip", acts.PATCH, *target, bare), gone)
    if way == AGAIN and body is not None:
        soon = 2 * AT_ONCE + draws.uniform(f"{label}/soon", 0.0, SOON)
        return (gone, Act(soon, f"{label}/again", acts.CREATE, *target, body))
    return (gone,)


def _is(act: Act, target: tuple[str, str, str]) -> bool:
    return (act.resource, act.namespace, act.name) == target
