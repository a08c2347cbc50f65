"""Faults that were injected, and what each of them strikes."""

from __future__ import annotations

import attrs

__all__ = ["Injection", "Subject"]


@attrs.frozen
class Subject:
    """What a fault strikes; empty strings for what it does not have.

    Attributes:
        owner: The process.
        verb: The verb of its call; `event` for an event of its watch.
        resource: The resource of its call.
        namespace: The namespace of the object that the call names.
        name: The name of the object that the call names.
    """

    owner: str = ""
    verb: str = ""
    resource: str = ""
    namespace: str = ""
    name: str = ""


@attrs.frozen
class Injection:
    """One injected fault.

    Attributes:
        label: What to suppress to prevent it.
        kind: The kind of fault.
        at: The virtual time in seconds.
        subject: What it strikes.
    """

    label: str
    kind: str
    at: float
    subject: Subject = Subject()
