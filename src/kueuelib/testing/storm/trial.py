"""The trial of a storm: a program, its users, and its laws; the program may be a coroutine."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import attrs

from kueuelib.api.kinds import KUEUE, V1BETA2
from kueuelib.embedded.cluster.contract import RUN_SECONDS
from kueuelib.errors import NotFound
from kueuelib.runtime.client import Client
from kueuelib.runtime.endpoint import Endpoint
from kueuelib.runtime.telemetry import Telemetry
from kueuelib.testing.storm.api import Api
from kueuelib.testing.storm.bundled import BundledManager
from kueuelib.testing.storm.draws import Draws
from kueuelib.testing.storm.environment import CONFIGURATION, LawBook, WorldProgram
from kueuelib.testing.storm.history import Commit, Obj
from kueuelib.testing.storm.laws import Laws, Tolerance, Violation
from kueuelib.testing.storm.profiles import RESOURCES, Profile
from kueuelib.testing.storm.run import LIMIT, WATCHES
from kueuelib.testing.storm.users import Scenario, scenario

if TYPE_CHECKING:
    from kueuelib.testing.storm.world import World

__all__ = [
    "BUNDLED",
    "ClusterState",
    "GivenLaws",
    "GivenProcess",
    "GivenProgram",
    "Objects",
    "Trial",
]


# ---- warms a world up: lazily created values are created before a fork ---------------------------
# Conversions, validation rules and schemas are compiled when they are first needed. A world that
# has played a Job from its creation to its end passes them to all its copies.

NAME: Final = "warm-up"
NAMESPACE: Final = "default"
PATIENCE: Final = 120.0
"""Seconds of the world for the Job, and for its removal."""
_FLAVORS: Final = f"resourceflavors.{KUEUE}"
_CLUSTER_QUEUES: Final = f"clusterqueues.{KUEUE}"
_LOCAL_QUEUES: Final = f"localqueues.{KUEUE}"
_WORKLOADS: Final = f"workloads.{KUEUE}"
_JOBS: Final = "jobs.batch"
_PODS: Final = "pods"


async def warm_up(world: World) -> None:
    """Play the life of one Job in a booted world, and remove everything again.

    Events of it stay, and metrics have counted it.

    Raises:
        TimeoutError: the Job did not end, or was not removed completely.
    """
    api = world.user()
    for resource, obj in _objects():
        await api.create(resource, obj)
    await _until(world, "end", lambda: _ended(world))
    places = ((_JOBS, NAMESPACE), (_LOCAL_QUEUES, NAMESPACE), (_CLUSTER_QUEUES, ""), (_FLAVORS, ""))
    for resource, namespace in places:
        try:
            await api.delete(resource, namespace, NAME)
        except NotFound:
            continue
        await _until(world, "go", lambda kind=resource: not world.objects(kind))
    for kind in (_WORKLOADS, _PODS):
        await _until(world, "go", lambda kind=kind: not world.objects(kind))
    await world.quiet(2.0, PATIENCE)


async def _until(world: World, what: str, done: Any) -> None:
    end = world.now + PATIENCE
    while not done():
        if world.now > end:
            raise TimeoutError(f"the world cannot be warmed up: what was made does not {what}")
        await world.sleep(0.1)


def _ended(world: World) -> bool:
    return any(
        condition["type"] == "Complete" and condition["status"] == "True"
        for job in world.objects(_JOBS)
        for condition in job["status"].get("conditions", ())
    )


def _objects() -> list[tuple[str, dict[str, Any]]]:
    version = f"{KUEUE}/{V1BETA2}"
    flavor = {"name": NAME, "resources": [{"name": "cpu", "nominalQuota": "1"}]}
    group = {"coveredResources": ["cpu"], "flavors": [flavor]}
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
    pod = {
        "metadata": {"annotations": {RUN_SECONDS: "1"}},
        "spec": {"restartPolicy": "Never", "containers": [container]},
    }
    labels = {"kueue.x-k8s.io/queue-name": NAME}
    return [
        (_FLAVORS, _object(version, "ResourceFlavor", {})),
        (
            _CLUSTER_QUEUES,
            _object(version, "ClusterQueue", {"namespaceSelector": {}, "resourceGroups": [group]}),
        ),
        (_LOCAL_QUEUES, _object(version, "LocalQueue", {"clusterQueue": NAME}, NAMESPACE)),
        (_JOBS, _object("batch/v1", "Job", {"template": pod}, NAMESPACE, labels)),
    ]


def _object(
    version: str,
    kind: str,
    spec: dict[str, Any],
    namespace: str = "",
    labels: dict[str, str] | None = None,
) -> dict[str, Any]:
    meta: dict[str, Any] = {"name": NAME, "labels": labels or {}}
    if namespace:
        meta["namespace"] = namespace
    return {"apiVersion": version, "kind": kind, "metadata": meta, "spec": spec}


# --------------------------------------------------------------------------------------------------

Objects = Callable[[str], list[Obj]]
"""Returns all stored objects of a resource, for example of `jobs.batch`."""


@attrs.frozen(eq=False)
class Trial:
    """Everything that storms need to know about a program.

    Attributes:
        program: The program of the managers; the adversary owns their connections.
        laws: Makes the laws of one storm; the objects are those of the store at any moment.
        scenario: Draws the acts of users in one storm.
        companions: Further programs, by the names of their processes; without faults.
        resources: Resources on which faults may focus; `None` means those that the program reads.
        limit: Seconds of calm within which all laws have to hold.
        replicas: The largest number of managers.
        conduct: Whether the calls of managers have to keep the laws of the bundled manager.
        variant: Returns the program with further settings of a scenario.
        prepare: Called once in the booted world, of which each storm gets a copy.
    """

    program: WorldProgram
    laws: Callable[[Objects, Tolerance], LawBook]
    scenario: Callable[[Draws, Profile], Scenario]
    companions: Mapping[str, WorldProgram] = attrs.field(factory=dict)
    resources: tuple[str, ...] | None = None
    limit: float = WATCHES
    replicas: int = 2
    conduct: bool = False
    variant: Callable[[Mapping[str, Any]], WorldProgram] | None = None
    prepare: Callable[[World], Coroutine[Any, Any, None]] | None = None


def _with(settings: Mapping[str, Any]) -> WorldProgram:
    return BundledManager({**CONFIGURATION, **settings})


def _laws(objects: Objects, tolerance: Tolerance) -> LawBook:
    del objects
    return Laws(tolerance)


BUNDLED: Final = Trial(
    program=BundledManager(),
    laws=_laws,
    scenario=scenario,
    resources=RESOURCES,
    limit=LIMIT,
    conduct=True,
    variant=_with,
    prepare=warm_up,
)
"""The bundled manager, hostile users of queues, and the laws of queueing."""


# ---- a program that is a coroutine function, with laws that are functions ------------------------

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
