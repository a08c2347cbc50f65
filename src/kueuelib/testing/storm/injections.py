"""Injected faults and their targets."""

from __future__ import annotations

import attrs

__all__ = ["Injection", "Subject"]


@attrs.frozen
class Subject:
    """The target of a fault; empty strings for missing parts.

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
        label: The label by which it can be suppressed.
        kind: The kind of fault.
        at: The virtual time in seconds.
        subject: Its target.
    """

    label: str
    kind: str
    at: float
    subject: Subject = Subject()
