"""Keeps the webhook configurations in line with what the process serves and is configured for.

The commands that write the configurations (`kueuelib install`, `kueuelib manifests`) know neither
the manager's configuration nor its plug-ins. So the process that answers the webhooks puts their
entries in order, for queueing kinds as well as for jobs: selectors follow
`manageJobsWithoutQueueName`, entries of plug-ins are added, and entries without a server are
removed, because they would refuse every object. They also follow the LocalQueues `default`, which
decide where jobs without a queue name are sent to us.
"""

from __future__ import annotations

import asyncio
import copy
import random
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any
from urllib.parse import urlsplit

import anyio

from kueuelib.api.kinds import MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS
from kueuelib.api.meta import Obj, ObjectKey, Resource
from kueuelib.errors import ApiError, ConfigError, Conflict, NotFound, TransportError
from kueuelib.jobs.lookups.owners import DefaultQueues
from kueuelib.jobs.webhooks.manifests import namespaces_of
from kueuelib.machinery.backoff import Backoff
from kueuelib.runtime.client import Client
from kueuelib.runtime.clock import SYSTEM_CLOCK
from kueuelib.runtime.failures import with_fix
from kueuelib.runtime.logs import get_logger
from kueuelib.runtime.steps import lasting_tasks
from kueuelib.runtime.webhook.admission import WebhookEntry
from kueuelib.runtime.webhook.trust import following

PERIOD = 60.0
"""Seconds between two looks at the configurations."""
COLLECTING = 0.1
"""Seconds to wait for further changes."""
CONTEST = 3
"""Consecutive repairs after which a warning says that another program writes the same entries."""
_SELECTORS = ("namespaceSelector", "objectSelector")


def in_order(configuration: Obj, wanted: Iterable[WebhookEntry], served: Collection[str]) -> Obj:
    """A webhook configuration with these entries; the same object when it has them.

    Args:
        configuration: the raw configuration; entries of other servers in it are left alone.
        wanted: the entries that belong into it.
        served: the paths that are answered.
    """
    webhooks = configuration.get("webhooks") or []
    pattern = next((each["clientConfig"] for each in webhooks if _path(each)), None)
    if pattern is None:
        return configuration
    entries = {entry.entry["name"]: entry for entry in wanted}
    others = {*served} - {entry.path for entry in entries.values()}
    kept = []
    for each in webhooks:
        entry = entries.pop(each["name"], None)
        if entry is not None:
            kept.append(_merged(each, entry, each["clientConfig"]))
        elif _path(each) in others or not _same_server(each["clientConfig"], pattern):
            kept.append(each)
    kept += [_merged({}, entry, pattern) for entry in entries.values()]
    return configuration if kept == webhooks else {**configuration, "webhooks": kept}


class EntryKeeper:
    """A part of a `Manager`: puts entries in order at the start, every minute, and when a
    configuration changes or a LocalQueue `default` comes or goes.

    Every replica does so, because each one answers webhooks. Correct entries are not written. The
    pauses between repairs grow to about a minute, so that two programs that write different entries
    do not keep the API server busy.

    Args:
        client: reads and writes.
        name: of the mutating configuration.
        validating_name: of the validating configuration.
        wanted: the entries of all kinds, given the namespaces with a default queue.
        served: the paths that are answered.
        default_queues: knows those namespaces.
    """

    def __init__(
        self,
        client: Client,
        name: str,
        validating_name: str,
        wanted: Callable[[Collection[str]], Iterable[WebhookEntry]],
        served: Callable[[], Collection[str]],
        default_queues: DefaultQueues,
    ) -> None:
        self._client = client
        self._targets = (
            (MUTATING_WEBHOOKS, name, True),
            (VALIDATING_WEBHOOKS, validating_name, False),
        )
        self._wanted = wanted
        self._served = served
        self._default_queues = default_queues
        self._written: frozenset[str] = frozenset()
        self._moved = asyncio.Event()
        self._log = get_logger("webhooks")

    async def run(self, ready: Callable[[], None]) -> None:
        """Keep them until cancelled; `ready` is called after the first try, even if it failed."""
        async with lasting_tasks("webhook entries") as group:
            group.start_soon(self._default_queues.follow, self._follow)
            for resource, name, _ in self._targets:
                informer = following(self._client, resource, ObjectKey("", name), SYSTEM_CLOCK)
                informer.add_handler(lambda _: self._moved.set())
                group.start_soon(informer.run, name=f"webhook-entries-{resource.plural}")
            group.start_soon(self._keep, ready)

    def _follow(self) -> None:
        if self._default_queues.namespaces != self._written:
            self._moved.set()

    async def _keep(self, ready: Callable[[], None]) -> None:
        pauses = Backoff(base=0.5, cap=60.0, jitter=0.5)
        repairs = Backoff(base=0.5, cap=30.0, jitter=1.0)
        is_ready = False
        while True:
            pause, before = PERIOD, self._written
            self._moved.clear()
            repaired = False
            try:
                for resource, name, mutating in self._targets:
                    repaired |= await self._look(resource, name, mutating)
                pauses.reset()
            except Conflict:  # another replica or another program was faster
                pause = pauses.next(SYSTEM_CLOCK.monotonic(), random.random())
            except (ApiError, TransportError, ConfigError) as error:
                pause = pauses.next(SYSTEM_CLOCK.monotonic(), random.random())
                self._log.warning("webhook entries cannot be restored", error=with_fix(error))
            if not is_ready:
                is_ready = True
                ready()
            elif repaired and self._written == before:
                await SYSTEM_CLOCK.sleep(repairs.next(SYSTEM_CLOCK.monotonic(), random.random()))
                if repairs.attempts >= CONTEST:
                    fix = "let only one program, and one version of it, write them"
                    self._log.warning("another program keeps writing webhook entries", fix=fix)
            with anyio.move_on_after(pause):
                await self._moved.wait()
                await anyio.sleep(COLLECTING)

    async def _look(self, resource: Resource, name: str, mutating: bool) -> bool:
        """Puts the entries of one configuration in order; returns whether they were not."""
        try:
            configuration = await self._client.get(resource, ObjectKey("", name))
        except NotFound:
            return False
        known = self._default_queues.namespaces
        if mutating:
            present = namespaces_of(configuration.get("webhooks") or ())
            self._written = present if known is None else known
        entries = self._wanted(self._written)
        wanted = [entry for entry in entries if entry.mutating is mutating]
        changed = in_order(configuration, wanted, self._served())
        if changed is configuration:
            return False
        await self._client.replace(resource, changed)
        names = [each["name"] for each in changed["webhooks"]]
        self._log.info("webhook entries restored", configuration=name, entries=names)
        return True


def _merged(present: Mapping[str, Any], entry: WebhookEntry, pattern: Mapping[str, Any]) -> Obj:
    """The entry, with the fields that others and the server have set in the present one."""
    merged = {**present, **copy.deepcopy(entry.entry)}
    for selector in _SELECTORS:
        merged[selector] = merged[selector] if selector in entry.entry else {}
    for rule, before in zip(merged["rules"], present.get("rules") or (), strict=False):
        for field, value in before.items():
            rule.setdefault(field, value)
    merged["clientConfig"] = _client_config(pattern, entry.path)
    return merged


def _client_config(pattern: Mapping[str, Any], path: str) -> Obj:
    made: Obj = copy.deepcopy(dict(pattern))
    if made.get("url"):
        parts = urlsplit(made["url"])
        made["url"] = f"{parts.scheme}://{parts.netloc}{path}"
    else:
        made["service"] = {**made["service"], "path": path}
    return made


def _path(webhook: Mapping[str, Any]) -> str:
    config = webhook.get("clientConfig") or {}
    if config.get("url"):
        return urlsplit(str(config["url"])).path
    return str((config.get("service") or {}).get("path") or "")


def _same_server(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return _client_config(one, "/") == _client_config(other, "/")
