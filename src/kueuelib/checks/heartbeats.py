"""Signs of life of check processes: the Lease that each of them renews while it decides.

Pure: callers pass what was read and when. Whether a process is silent is judged only by how long
    its
Lease was seen unchanged, never by comparing clocks of two machines.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs

from kueuelib.api.meta import Obj, ObjectKey, annotations_of, key_of

HEARTBEAT_LABEL = "kueuelib.dev/heartbeat"
HEARTBEAT_OF_CHECKS = "admission-check"
CONTROLLERS_ANNOTATION = "kueuelib.dev/admission-check-controllers"
"""The controller names that a process decides for, separated by commas."""
TERMS = 2.0
"""Lease durations without a renewal after which a process counts as silent."""
LEAST_PATIENCE = 10.0
"""Seconds without a renewal that are always tolerated, however short the Lease is."""
USUAL_DURATION = 15.0
"""Seconds; assumed for a released Lease, which no longer names its duration."""
_NAME_LIMIT = 36


def lease_name(controller_name: str) -> str:
    """The name of the Lease of a process, made from the name of its first check."""
    text = re.sub("[^a-z0-9]+", "-", controller_name.lower()).strip("-")[:_NAME_LIMIT].strip("-")
    digest = hashlib.sha256(controller_name.encode()).hexdigest()[:8]
    return "-".join(filter(None, ("kueuelib-check", text, digest)))


def lease_labels() -> dict[str, str]:
    """The labels by which Leases of check processes are found."""
    return {HEARTBEAT_LABEL: HEARTBEAT_OF_CHECKS}


def lease_annotations(controller_names: Sequence[str]) -> dict[str, str]:
    """The annotations that name the controllers behind a Lease."""
    return {CONTROLLERS_ANNOTATION: ",".join(controller_names)}


@attrs.frozen
class Silence:
    """A controller has been silent for too long.

    Attributes:
        controller_name: of the silent process.
        lease: the Lease that was renewed last.
        since: the last renewal as the process wrote it, for people; empty when it never did.
    """

    controller_name: str
    lease: ObjectKey
    since: str

    @property
    def message(self) -> str:
        """For conditions and events."""
        since = f" since {self.since}" if self.since else ""
        return (
            f"no sign of life from {self.controller_name}{since}: "
            f"its Lease {self.lease} is not renewed"
        )


@attrs.define
class _Seen:
    """One Lease: its spec, and for how many observed seconds it has not changed."""

    controllers: tuple[str, ...]
    spec: Mapping[str, Any]
    duration: float
    unchanged: float = 0.0

    @property
    def silent(self) -> bool:
        return self.unchanged > max(LEAST_PATIENCE, TERMS * self.duration)

    @property
    def since(self) -> str:
        whole, _, _ = str(self.spec.get("renewTime") or "").partition(".")
        return whole if not whole or whole.endswith("Z") else f"{whole}Z"


class Heartbeats:
    """Finds silent controllers by their Leases.

    Only time in which the Leases could be read counts: while the API server did not answer, no
    Lease could be renewed. A controller without a Lease is never silent: it may be a different
    program, or one that does not report itself.
    """

    def __init__(self) -> None:
        self._seen: dict[ObjectKey, _Seen] = {}
        self._looked: float | None = None

    def observe(self, leases: Iterable[Obj], now: float) -> None:
        """Take in all present Leases of check processes; `now` is in monotonic seconds."""
        passed = 0.0 if self._looked is None else max(now - self._looked, 0.0)
        self._looked = now
        before, self._seen = self._seen, {}
        for lease in leases:
            listed = annotations_of(lease).get(CONTROLLERS_ANNOTATION, "")
            names = tuple(filter(None, listed.split(",")))
            spec = lease.get("spec") or {}
            old = before.get(key_of(lease))
            held = spec.get("holderIdentity")
            known = USUAL_DURATION if old is None else old.duration
            duration = (spec.get("leaseDurationSeconds") if held else None) or known
            unchanged = 0.0 if old is None or old.spec != spec else old.unchanged + passed
            self._seen[key_of(lease)] = _Seen(names, spec, duration, unchanged)

    def missed(self) -> None:
        """The Leases could not be read: the time until the next observation does not count."""
        self._looked = None

    def silences(self) -> dict[str, Silence]:
        """The silent controllers by name; any renewed Lease of a controller keeps it alive."""
        alive = {
            name for seen in self._seen.values() if not seen.silent for name in seen.controllers
        }
        silences: dict[str, Silence] = {}
        for key, seen in self._seen.items():
            for name in seen.controllers:
                if name not in alive and seen.since >= (
                    silences[name].since if name in silences else ""
                ):
                    silences[name] = Silence(name, key, seen.since)
        return silences
