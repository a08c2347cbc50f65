"""Decides which commands of a plan may run in parallel (KEP-369).

The pods of a group are independent: their order does not matter, and the next plan completes one
that ended halfway. So consecutive commands about pods run in lanes, one per pod. All others run one
after the other.
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
"""Commands that run in order."""


def stretches(commands: Sequence[Command]) -> list[tuple[Lane, ...]]:
    """The plan in consecutive pieces, each made of lanes that may run in parallel."""
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
    """The UID of the pod that a command is about; empty if it is about anything else."""
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
