"""What a law is, and what it may tolerate."""

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
        object: what broke it: resource, namespace and name.
        text: what was seen and what should have been.
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
        when: `commit` (holds in every stored state), `call` (holds of every call that is sent) or
            `rest` (holds once all is quiet).
        sentence: what has to hold.
    """

    name: str
    when: str
    sentence: str


@attrs.frozen
class Tolerance:
    """What the adversary makes legal.

    Attributes:
        lag: seconds that a decision may be older than the commit that it leads to. A request that
            is held back on the wire is committed that late, and nothing fences it. With 0 every
            decision has to agree with the stored state.
        burst: commits of managers to one object within `window` seconds.
        window: seconds over which bursts are counted.
        patience: seconds that a write may wait for a connection after it was made.
    """

    lag: float = 0.0
    burst: int = 40
    window: float = 30.0
    patience: float = 2.0
