"""Which commands of a plan may be done at the same time (spec/jobs 4.6, 4.7).

The pods of a group do not depend on each other: it does not matter which of them are started,
released or deleted first, and the next plan completes one that ended halfway. So commands about
pods that follow one another are done in lanes, one per pod; all others one after the other.
"""

from __future__ import annotations

from collections.abc import Sequence

from kueuelib.api.kinds import PODS
from kueuelib.jobs.contract.commands import (
    Change,
    Command,
    Count,
    Delete,
    DropFinalizer,
    Emit,
    PatchStatus,
)

Lane = tuple[Command, ...]
"""Commands that are done in order."""


def stretches(commands: Sequence[Command]) -> list[tuple[Lane, ...]]:
    """The plan in pieces to be done one after the other, each of lanes that may be done at once."""
    pieces: list[tuple[Lane, ...]] = []
    lanes: dict[str, list[Command]] = {}
    last = ""
    for command in commands:
        key = last if isinstance(command, Count) else _pod(command)
        if key:
            lanes.setdefault(key, []).append(command)
        else:
            pieces += _closed(lanes)
            lanes = {}
            pieces.append(((command,),))
        last = key
    return [*pieces, *_closed(lanes)]


def _closed(lanes: dict[str, list[Command]]) -> list[tuple[Lane, ...]]:
    return [tuple(map(tuple, lanes.values()))] if lanes else []


def _pod(command: Command) -> str:
    """The UID of the pod that a command is about; empty when it is about anything else."""
    match command:
        case Change(resource, obj) | PatchStatus(resource, obj):
            pass
        case DropFinalizer(resource, obj) | Delete(resource, obj):
            pass
        case Emit(obj) if obj.get("kind") == PODS.kind:
            resource = PODS
        case _:
            return ""
    return str(obj["metadata"].get("uid", "")) if resource == PODS else ""
