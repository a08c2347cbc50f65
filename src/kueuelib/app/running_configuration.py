"""The configuration of the manager that runs, and what else it notes on its Lease.

The leader writes what differs from the defaults and changes decisions or jobs on its Lease, which
every authenticated user may read. The ConfigMap of an installation is for those who may read it,
and for managers that write nothing on their Lease, like the Go manager.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import attrs
import orjson

from kueuelib.api.kinds import CONFIG_MAPS, CRDS, KUEUE, LEASES
from kueuelib.api.meta import Obj, ObjectKey, Resource, annotations_of, key_of, parse_time
from kueuelib.api.phrases import duration
from kueuelib.app.configuration import CONFIG_FILE, CONFIG_MAP, Configuration, LeaderElection
from kueuelib.app.configuration_reading import load_configuration, parse_configuration
from kueuelib.app.configuration_text import as_content
from kueuelib.app.decision_settings import engine_settings
from kueuelib.errors import ApiError, ConfigError, Forbidden, NotFound, TransportError
from kueuelib.runtime.client import Client, read
from kueuelib.runtime.clock import SYSTEM_CLOCK, Clock
from kueuelib.runtime.connection import server_time
from kueuelib.runtime.logs import get_logger
from kueuelib.runtime.queries import ending_plurals
from kueuelib.runtime.yaml_files import documents

# What a manager notes on its Lease for the commands that look at it, and the writer of such notes
# where no election renews the Lease.

PAUSE = 10.0
"""Seconds until the next try after a failure."""
SKEW: Final = 30.0
"""Seconds by which clocks may differ; a renewal may be under way for some of them."""
TAKEOVER: Final = 15.0
"""Seconds after which a new leader is expected once the last one has left."""
_DEADLINES: Final = 3
"""The `renewDeadline`s for which a leader may be silent, as long as its Lease lasts."""
PUBLISHED: Final = "kueuelib.dev/configuration"
"""The annotation of the Lease with the leader's configuration."""
DECISIVE: Final = (
    "leader_election",
    "manage_jobs_without_queue_name",
    "managed_jobs_namespace_selector",
    "wait_for_pods_ready",
    "object_retention_policies",
    "fair_sharing",
    "preemption",
    "borrowing",
    "admission_fair_sharing",
    "integrations",
    "resources",
    "quota_release_strategy",
    "feature_gates",
)
"""The blocks that are published."""
_HEADS: Final = ("apiVersion", "kind")


def written_at(lease: Obj) -> float | None:
    """When the API server stored the last renewal, by its own clock; None if unknown.

    Args:
        lease: the raw one.
    """
    times = [
        parse_time(entry["time"])
        for entry in lease["metadata"].get("managedFields") or ()
        if "f:renewTime" in ((entry.get("fieldsV1") or {}).get("f:spec") or {})
        and entry.get("time")
    ]
    return max(times, default=None)


def renewed_ago(lease: Obj, now: float) -> float:
    """Seconds since the last renewal, by the clock of the API server if that is known; 0 without.

    Args:
        lease: the raw one.
        now: by the clock of the API server.
    """
    renewed = (lease.get("spec") or {}).get("renewTime")
    written = written_at(lease)
    if written is None:
        written = parse_time(renewed) if renewed else now
    return max(0.0, now - written)


def is_held(lease: Obj, now: float, election: LeaderElection | None = None) -> bool:
    """Whether a manager has renewed a Lease in time, so that it leads.

    Args:
        lease: the raw one.
        now: by the clock of the API server.
        election: that of the managers: a holder that renews it too seldom for them leads nothing,
            however long the Lease lasts. Without it, the Lease is believed.
    """
    spec = lease.get("spec") or {}
    renewed = bool(spec.get("holderIdentity") and spec.get("renewTime"))
    lasts: float = lasts_for(lease)
    lasts = lasts if election is None else min(lasts, longest_pause(election))
    return renewed and renewed_ago(lease, now) <= lasts


def lasts_for(lease: Obj) -> int:
    """Seconds after a renewal for which others leave a Lease to its holder.

    Args:
        lease: the raw one.
    """
    return int((lease.get("spec") or {}).get("leaseDurationSeconds") or 0)


def longest_pause(election: LeaderElection) -> float:
    """Seconds after which a holder that has not renewed the Lease does not lead.

    Args:
        election: that of the managers.
    """
    return max(election.lease_duration, _DEADLINES * election.renew_deadline)


def is_released(lease: Obj, now: float) -> bool:
    """Whether the last leader has left so recently that the next one may be about to start.

    Args:
        lease: the raw one.
        now: by the clock of the API server.
    """
    return not (lease.get("spec") or {}).get("holderIdentity") and (
        renewed_ago(lease, now) <= TAKEOVER
    )


def published(configuration: Configuration, holder: str) -> str:
    """The value of the annotation.

    Args:
        configuration: the leader's. Its preemption policy is left out: a reader need not have it.
        holder: its identity in the Lease; empty without leader election.
    """
    preemption = attrs.evolve(configuration.preemption, policy="", parameters={})
    configuration = attrs.evolve(configuration, preemption=preemption)
    decisive = {name: getattr(configuration, name) for name in DECISIVE}
    content, default = as_content(Configuration(**decisive)), as_content(Configuration())
    changed = {key: one for key, one in content.items() if key in _HEADS or one != default.get(key)}
    return orjson.dumps({"holder": holder, "configuration": changed}).decode()


def holder_of(lease: Obj) -> str:
    """Who wrote the annotation, also after it gave up the Lease; empty if nobody is known.

    Args:
        lease: the stored one.
    """
    return str(_note(lease).get("holder") or "")


def has_own_configuration(lease: Obj) -> bool:
    """Whether the annotation says that a manager ran with another configuration than the default.

    Args:
        lease: the stored one.
    """
    published = _note(lease).get("configuration")
    return isinstance(published, dict) and bool(published.keys() - {*_HEADS})


def _note(lease: Obj) -> Obj:
    """The value of the annotation; empty if it is not valid."""
    with contextlib.suppress(orjson.JSONDecodeError):
        note = orjson.loads(annotations_of(lease).get(PUBLISHED) or "{}")
        return note if isinstance(note, dict) else {}
    return {}


class LeaseNotes:
    """Annotates the Lease of a manager without leader election; a part of it.

    The Lease has no holder. It is made only if there is something to say.

    Args:
        client: reads and writes the Lease.
        lease: the one that an election would use.
        clock: time.
    """

    def __init__(self, client: Client, lease: ObjectKey, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._client = client
        self._lease = lease
        self._clock = clock
        self._notes: dict[str, str] = {}
        self._changed = asyncio.Event()
        self._log = get_logger("configuration")

    def annotate(self, key: str, value: str) -> None:
        """Set an annotation, as `Manager.annotate_lease` does with an election."""
        self._notes[key] = value
        self._changed.set()

    async def run(self, ready: Callable[[], None]) -> None:
        """Write the annotations whenever one changes, until cancelled."""
        ready()
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                await self._write(dict(self._notes))
            except Forbidden as error:
                self._log.warning("kueuelib doctor will not know", error=str(error))
            except (ApiError, TransportError) as error:
                self._log.info("the lease is out of reach", error=str(error))
                self._changed.set()
                await self._clock.sleep(PAUSE)

    async def _write(self, notes: dict[str, str]) -> None:
        meta = {"namespace": self._lease.namespace, "name": self._lease.name}
        try:
            lease = await self._client.get(LEASES, self._lease)
        except NotFound:
            if any(notes.values()):
                body = {**meta, "annotations": notes}
                head = {"apiVersion": LEASES.api_version, "kind": LEASES.kind}
                await self._client.create(LEASES, {**head, "metadata": body, "spec": {}})
            return
        known = annotations_of(lease)
        if any(known.get(key, "") != value for key, value in notes.items()):
            body = {**lease, "metadata": {**lease["metadata"], "annotations": {**known, **notes}}}
            await self._client.replace(LEASES, body)


# --------------------------------------------------------------------------------------------------

OTHERWISE: Final = (
    "(if your manager runs with leaderElect off, name its configuration with --config)"
)


@attrs.frozen
class AssumedConfiguration:
    """The configuration that a command assumes.

    Attributes:
        configuration: the manager's, as far as it is known.
        notes: for people: where it was found, or why the default one is assumed.
        leaderless: for people: that no manager decides, if that was seen.
        ending: for people: the queueing kinds whose objects are being deleted, all of them.
    """

    configuration: Configuration
    notes: tuple[str, ...] = ()
    leaderless: tuple[str, ...] = ()
    ending: tuple[str, ...] = ()

    @property
    def warnings(self) -> tuple[str, ...]:
        """All of it but the configuration."""
        return (*self.notes, *self.ending, *self.leaderless)


def given_configuration(file: Path | None) -> Configuration | None:
    """The configuration in the file that the user named; None if none was.

    Raises:
        ConfigError: it is not valid.
    """
    return None if file is None else load_configuration(file)


async def running_configuration(
    client: Client, given: Configuration | None = None
) -> AssumedConfiguration:
    """The configuration that the user gave; without one, that of the cluster's manager.

    Args:
        client: whose cluster.
        given: read from the user's file.

    Raises:
        TransportError: the server did not answer.
    """
    stored = AssumedConfiguration(given) if given is not None else await _mounted(client)
    answer = await _answered(client, LEASES, stored.configuration.lease)
    lease = None if isinstance(answer, ApiError) else answer
    running = stored if given is not None else _with_published(stored, lease)
    leaderless: tuple[str, ...] = ()
    if not isinstance(answer, ApiError) and running.configuration.leader_election.leader_elect:
        now = await server_time(client)
        leaderless = _leaderless(running.configuration, lease, now)
    return attrs.evolve(running, leaderless=leaderless, ending=await _ending(client))


def _with_published(stored: AssumedConfiguration, lease: Obj | None) -> AssumedConfiguration:
    """What an installation says, with what the leader has published on its Lease."""
    name, content = f"Lease {stored.configuration.lease}", _of_holder(lease)
    if content is None:
        return stored
    try:
        leading = _parsed(content, name)
    except ConfigError as error:
        return attrs.evolve(stored, notes=(_unknown(error),))
    values = {key: getattr(leading, key) for key in DECISIVE}
    configuration = attrs.evolve(stored.configuration, **values)
    return attrs.evolve(stored, configuration=configuration, notes=_assumed(configuration, name))


def _leaderless(manager: Configuration, lease: Obj | None, now: float) -> tuple[str, ...]:
    """A note if no manager leads; none while the next one may be about to start."""
    election, key = manager.leader_election, manager.lease
    if lease is not None and (is_held(lease, now, election) or is_released(lease, now)):
        return ()
    why = "which does not exist"
    if lease is not None:
        holder = (lease.get("spec") or {}).get("holderIdentity")
        ago = duration(renewed_ago(lease, now))
        why = f"{holder} renewed it {ago} ago" if holder else "the last one has left"
    problem = f"no manager holds the Lease {key}, {why}, so nothing is queued or admitted"
    return (f"{problem} {OTHERWISE}; see kueuelib doctor",)


async def _ending(client: Client) -> tuple[str, ...]:
    """A note if definitions of queueing kinds are being deleted. Discovery shows those whose
    objects are being deleted to everybody; who may list definitions also sees those that only
    another program keeps.
    """
    plurals: set[str] = set()
    for version in (await client.served_versions(KUEUE))[:1]:
        plurals.update(await ending_plurals(client.request, f"{KUEUE}/{version}"))
    with contextlib.suppress(Forbidden):
        for one in (await client.list(CRDS, metadata_only=True)).items:
            plural, _, group = one["metadata"]["name"].partition(".")
            if group == KUEUE and one["metadata"].get("deletionTimestamp"):
                plurals.add(plural)
    if not plurals:
        return ()
    why = "being deleted with all objects, of which some may be gone already"
    return (f"these kinds are {why}: {', '.join(sorted(plurals))}; see kueuelib doctor",)


async def _mounted(client: Client) -> AssumedConfiguration:
    """What the ConfigMap of an installation says."""
    default = Configuration()
    key = ObjectKey(default.manager_namespace, CONFIG_MAP)
    answer = await _answered(client, CONFIG_MAPS, key)
    if isinstance(answer, ApiError):
        return AssumedConfiguration(default, (_unknown(answer),))
    try:
        configuration = None if answer is None else mounted_configuration(answer)
    except ConfigError as error:
        return AssumedConfiguration(default, (_unknown(error),))
    if configuration is None:
        return AssumedConfiguration(default)
    return AssumedConfiguration(configuration, _assumed(configuration, _name(key)))


def mounted_configuration(stored: Obj) -> Configuration | None:
    """The configuration in the ConfigMap of an installation; None if it holds none.

    Args:
        stored: the ConfigMap.

    Raises:
        ConfigError: it is not valid, or this version does not know it.
    """
    text = (stored.get("data") or {}).get(CONFIG_FILE)
    if text is None:
        return None
    name = _name(key_of(stored))
    contents = documents(text, name)
    return _parsed(contents[0] if len(contents) == 1 else None, name)


def _name(config_map: ObjectKey) -> str:
    return f"ConfigMap {config_map}"


async def _answered(client: Client, resource: Resource, key: ObjectKey) -> Obj | ApiError | None:
    try:
        return await read(client, resource, key)
    except ApiError as error:
        return error


def _of_holder(lease: Obj | None) -> Any:
    """What the present or last leader has published; None if that was another manager."""
    text = annotations_of(lease or {}).get(PUBLISHED)
    if not text:
        return None
    try:
        note = orjson.loads(text)
    except orjson.JSONDecodeError:
        return text  # parsing it says what is wrong
    holder = ((lease or {}).get("spec") or {}).get("holderIdentity") or ""
    if not isinstance(note, dict):
        return text
    return note.get("configuration") if holder in ("", note.get("holder")) else None


def _parsed(content: Any, source: str) -> Configuration:
    """The configuration without its preemption policy, which may not be installed here.

    Raises:
        ConfigError: it is not valid, or this version does not know it.
    """
    if isinstance(content, dict) and isinstance(content.get("preemption"), Mapping):
        block = {
            key: value
            for key, value in content["preemption"].items()
            if key not in ("policy", "parameters")
        }
        content = {**content, "preemption": block}
    return parse_configuration(content, source)


def _assumed(configuration: Configuration, source: str) -> tuple[str, ...]:
    """A note if the configuration decides otherwise than the default one."""
    others = configuration.manage_jobs_without_queue_name
    if engine_settings(configuration) == engine_settings(Configuration()) and not others:
        return ()
    return (f"decided by the manager's configuration, from {source}",)


def _unknown(error: Exception) -> str:
    why = " ".join(str(error).split())
    return (
        f"the manager's configuration is not known ({why}): the default one is assumed; name "
        "the manager's with --config"
    )
