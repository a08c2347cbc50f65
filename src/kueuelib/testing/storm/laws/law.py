"""Laws, violations, and tolerances."""

from __future__ import annotations

import attrs

COMMIT = "commit"
REST = "rest"
CALL = "call"


@attrs.frozen
class Violation:
    """A law that did not hold.

    Attributes:
        law: its name in the table of laws.
        at: virtual seconds since the epoch.
        object: the object at fault: resource, namespace and name.
        text: the observation and the expectation.
    """

    law: str
    at: float
    object: str
    text: str

    def __str__(self) -> str:
        """One line for reports."""
        return f"{self.law}: {self.object}: {self.text}"


@attrs.frozen
class Law:
    """One row of the table of laws.

    Attributes:
        name: short, with hyphens.
        when: `commit` (holds in every stored state), `call` (holds for every call) or
            `rest` (holds at rest).
        sentence: what has to hold.
    """

    name: str
    when: str
    sentence: str


@attrs.frozen
class Tolerance:
    """The legal delays of a run.

    Attributes:
        lag: seconds that a decision may be older than its commit. A request that is held back on
            the wire is committed late, without fencing. With 0, every decision has to agree with
            the stored state.
        burst: commits of managers to one object within `window` seconds.
        window: seconds over which bursts are counted.
        patience: seconds that a write may wait for a connection.
    """

    lag: float = 0.0
    burst: int = 40
    window: float = 30.0
    patience: float = 2.0
