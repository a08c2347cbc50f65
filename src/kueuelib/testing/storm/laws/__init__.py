"""The laws, judged by code that shares nothing with the product: from raw JSON to violations.

This package imports nothing of kueuelib except itself and the history.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping

from kueuelib.testing.storm.history import Commit, Obj
from kueuelib.testing.storm.laws.conduct import CONDUCT, Conduct
from kueuelib.testing.storm.laws.law import Law, Tolerance, Violation
from kueuelib.testing.storm.laws.memory import CommitFold
from kueuelib.testing.storm.laws.rest import REST_LAWS, StateAtRest
from kueuelib.testing.storm.laws.safety import SAFETY, SafetyLaw
from kueuelib.testing.storm.laws.sometimes import SITUATIONS, never, situations

__all__ = ["LAWS", "SITUATIONS", "Conduct", "Law", "Laws", "Tolerance", "Violation", "never"]

LAWS: tuple[Law, ...] = (
    *(one.law for one in SAFETY),
    *CONDUCT,
    *(one.law for one in REST_LAWS),
)
"""All of them, for documentation and reports."""


class Laws:
    """Follows one history and reports violations.

    Args:
        tolerance: the legal delays of this run.

    Attributes:
        sometimes: how often each situation of `SITUATIONS` was reached.
        memory: the facts so far.
    """

    def __init__(self, tolerance: Tolerance | None = None) -> None:
        self.memory = CommitFold(tolerance or Tolerance())
        self.sometimes: Counter[str] = Counter()
        self._by_resource: Mapping[str, list[SafetyLaw]] = _by_resource()

    def commit(self, commit: Commit) -> list[Violation]:
        """Judges the next commit; call it once for each, in the order of revisions.

        Returns:
            its violations.
        """
        memory = self.memory
        memory.store(commit)
        violations = [
            Violation(one.law.name, commit.at, commit.title, text)
            for one in self._by_resource.get(commit.resource, ())
            for text in one.check(memory, commit)
        ]
        self.sometimes.update(situations(memory, commit))
        memory.learn(commit)
        return violations

    def at_rest(self, objects: Callable[[str], list[Obj]], now: float) -> list[Violation]:
        """Judges a state at rest.

        Args:
            objects: returns all stored objects of a resource, for example of `jobs.batch`.
            now: virtual seconds since the epoch.
        """
        rest = StateAtRest(objects, now)
        return [
            Violation(one.law.name, now, subject, text)
            for one in REST_LAWS
            for subject, text in one.check(rest)
        ]


def _by_resource() -> Mapping[str, list[SafetyLaw]]:
    by_resource: dict[str, list[SafetyLaw]] = defaultdict(list)
    for one in SAFETY:
        for resource in one.resources:
            by_resource[resource].append(one)
    return dict(by_resource)
