"""Checks that a manager charges the quota that it has reserved."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Protocol

from kueuelib.testing.storm.history import Commit
from kueuelib.testing.storm.laws.memory import is_manager
from kueuelib.testing.storm.laws.reading import WORKLOADS, condition, reserving, uid

Key = tuple[str, str]
"""Namespace and name."""


class Mind(Protocol):
    """The beliefs of a manager, from its start to its end."""

    def charges(self, namespace: str, name: str, uid: str, /) -> bool:
        """Whether it charges exactly this Workload."""
        ...


class Charged:
    """The reservations written by managers that are still alive.

    A manager charges a Workload from its decision until it has seen the release of the quota, which
    is visible only once it is stored. A request from an earlier life may be stored during the next
    one, which need not know of it.

    Args:
        mind: returns the mind of a manager by name, the same one until it ends; None if it does not
            run or cannot be inspected.
    """

    def __init__(self, mind: Callable[[str], Mind | None]) -> None:
        self._mind = mind
        self._sent: dict[tuple[str, Key], tuple[str, Mind]] = {}
        self._stored: dict[Key, tuple[str, str, Mind]] = {}

    def sent(self, owner: str, key: Key, body: bytes) -> None:
        """A manager asks for a change of the status of a Workload."""
        patch = json.loads(body)
        if condition(patch, "QuotaReserved").get("status") != "True":
            return
        mind = self._mind(owner)
        if mind is not None:
            self._sent[owner, key] = uid(patch), mind

    def committed(self, commit: Commit) -> Iterator[tuple[Key, str]]:
        """Take in a commit.

        Returns:
            the Workloads, each once, that the writer has reserved quota for without charging them,
            and their UIDs.
        """
        if commit.resource == WORKLOADS:
            self._store(commit)
        if not is_manager(commit.actor):
            return
        present = self._mind(commit.actor)
        for key, (owner, identity, mind) in tuple(self._stored.items()):
            if owner == commit.actor and mind is present and not mind.charges(*key, identity):
                del self._stored[key]
                yield key, identity

    def _store(self, commit: Commit) -> None:
        key, new = (commit.namespace, commit.name), commit.new
        if new is not None and reserving(new) and reserving(commit.old):
            return
        self._stored.pop(key, None)
        asked = self._sent.get((commit.actor, key))
        if new is not None and reserving(new) and asked is not None and asked[0] == uid(new):
            self._stored[key] = (commit.actor, *asked)
