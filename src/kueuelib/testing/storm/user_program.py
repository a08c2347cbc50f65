"""A program that is a coroutine function, with laws that are functions."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final

import attrs

from kueuelib.api.meta import Obj
from kueuelib.runtime.client import Client
from kueuelib.runtime.endpoint import Endpoint
from kueuelib.runtime.telemetry import Telemetry
from kueuelib.testing.storm.api import Api
from kueuelib.testing.storm.history import Commit
from kueuelib.testing.storm.laws import Violation
from kueuelib.testing.storm.trial import Objects

__all__ = ["ClusterState", "GivenLaws", "GivenProcess", "GivenProgram"]

SETTLING: Final = 5.0
"""Seconds that a program gets to start on a clean wire, because it cannot report readiness."""

Function = Callable[[Endpoint], Awaitable[object]]
"""Runs a program against an API server until it is cancelled."""


class GivenProcess:
    """A process that runs a coroutine function.

    Args:
        function: Runs the program until it is cancelled.
        endpoint: The API server.
    """

    root: object = None
    telemetries: tuple[Telemetry, ...] = ()

    def __init__(self, function: Function, endpoint: Endpoint) -> None:
        self.ready = self.stopped = False
        self._function = function
        self._endpoint = endpoint
        self._task: asyncio.Task[object] | None = None

    async def run(self) -> None:
        """Run it until it ends by itself or is stopped."""
        self._task = asyncio.ensure_future(_as_coroutine(self._function(self._endpoint)))
        settled = asyncio.get_running_loop().call_later(SETTLING, self._settle)
        try:
            await asyncio.wait((self._task,))
            if not self._task.cancelled():
                self._task.result()
        finally:
            settled.cancel()
            self.ready = False

    def stop(self) -> None:
        """Cancel it."""
        self.stopped = True
        if self._task is not None:
            self._task.cancel()

    def _settle(self) -> None:
        self.ready = True


async def _as_coroutine(work: Awaitable[object]) -> object:
    return await work


@attrs.frozen(eq=False)
class GivenProgram:
    """A program that is a coroutine function.

    Attributes:
        function: Receives the API server's endpoint, and runs until it is cancelled.
        objects: Raw objects that are created before it starts, in this order: CRDs first.
        services: Addresses of its webhook Services: `namespace/name` to `host:port`.
    """

    function: Function
    objects: tuple[Obj, ...] = ()
    services: Mapping[str, str] = attrs.field(factory=dict)

    async def install(self, client: Client, api: Api) -> None:
        """Create the objects; existing ones are not changed."""
        del client
        await api.create_missing(self.objects)

    def process(self, endpoint: Endpoint) -> GivenProcess:
        """Return a new process."""
        return GivenProcess(self.function, endpoint)


class ClusterState:
    """The stored objects of the API server.

    Args:
        objects: Returns the stored objects.

    Attributes:
        history: Every write of this storm, oldest first.
    """

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self.history: list[Commit] = []

    def objects(self, resource: str) -> list[Obj]:
        """Return all raw objects of a resource.

        Args:
            resource: Plural and group, for example `jobs.batch`, or `pods`.
        """
        return self._objects(resource)


RestLaw = Callable[[ClusterState], Iterable[str]]
CommitLaw = Callable[[Commit, ClusterState], Iterable[str]]


class GivenLaws:
    """Laws that are functions; each yields a sentence for each violation.

    Args:
        objects: Returns the stored objects.
        at_rest: Judge a state at rest.
        at_commit: Judge each write, right after it was stored.

    Attributes:
        sometimes: Empty, because functions do not count situations.
    """

    def __init__(
        self, objects: Objects, at_rest: Sequence[RestLaw], at_commit: Sequence[CommitLaw]
    ) -> None:
        self.sometimes: Counter[str] = Counter()
        self._cluster = ClusterState(objects)
        self._at_rest = at_rest
        self._at_commit = at_commit

    def commit(self, commit: Commit) -> list[Violation]:
        """Return the violations of a commit."""
        self._cluster.history.append(commit)
        return [
            Violation(name_of(law), commit.at, commit.title, text)
            for law in self._at_commit
            for text in _judgement(law, commit, self._cluster)
        ]

    def at_rest(self, objects: Objects, now: float) -> list[Violation]:
        """Return the violations at rest."""
        del objects
        return [
            Violation(name_of(law), now, "", text)
            for law in self._at_rest
            for text in _judgement(law, self._cluster)
        ]


def name_of(law: Callable[..., object]) -> str:
    """Return the name of a law: that of its function, with hyphens."""
    return getattr(law, "__name__", type(law).__name__).replace("_", "-")


def _judgement(law: Callable[..., Iterable[str]], *about: object) -> list[str]:
    try:
        return list(law(*about))
    except Exception as error:  # noqa: BLE001 - a law that fails must not look like a fault of the server
        return [f"the law itself raised {type(error).__name__}: {error}"]
