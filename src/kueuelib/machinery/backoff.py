"""Growing pauses between attempts, with jitter."""

from __future__ import annotations

import attrs


@attrs.define
class Backoff:
    """Pauses of `base`, `base * factor`, ... seconds, at most `cap`, each stretched by jitter.

    Attributes:
        base: the first pause in seconds.
        factor: growth per attempt.
        cap: the longest pause in seconds, before jitter.
        jitter: a pause becomes up to `1 + jitter` times as long.
        reset_after: after so many seconds without a call, the next pause is the first again; it
            must exceed the longest pause, or a long pause would count as recovery.
    """

    base: float = 0.8
    factor: float = 2.0
    cap: float = 30.0
    jitter: float = 1.0
    reset_after: float = 120.0
    _attempts: int = attrs.field(default=0, init=False)
    _last: float | None = attrs.field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        if not (0 < self.base <= self.cap and self.factor >= 1 and self.jitter >= 0):
            raise ValueError("back-off needs 0 < base <= cap, factor >= 1 and jitter >= 0")
        if self.reset_after <= self.cap * (1 + self.jitter):
            raise ValueError("reset_after must exceed the longest pause")

    @property
    def attempts(self) -> int:
        """Calls of `next` since the last reset."""
        return self._attempts

    def next(self, now: float, chance: float) -> float:
        """The next pause in seconds.

        Args:
            now: the time; only differences matter.
            chance: a random number in [0, 1).
        """
        if self._last is not None and now - self._last > self.reset_after:
            self.reset()
        self._last = now
        grown = self.base * self.factor ** min(self._attempts, 1000 if self.factor <= 2 else 100)
        self._attempts += 1
        return min(grown, self.cap) * (1.0 + self.jitter * chance)

    def reset(self) -> None:
        """After a success: the next pause is the first again."""
        self._attempts = 0
