"""Gives jobs without a queue name the LocalQueue `default` of their namespace, if there is one.

A change of these LocalQueues also changes what the API server has to send us: see `manifests` of
`kueuelib.jobs.webhooks` for the entries, and `entries` for the writes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import anyio

from kueuelib.api.meta import Obj, ObjectKey, annotations_of, labels_of, with_label
from kueuelib.api.names import DEFAULT_QUEUE, QUEUE_LABEL
from kueuelib.errors import Unavailable
from kueuelib.machinery.store import Delta
from kueuelib.runtime.informer import Informer


def names_no_queue(obj: Mapping[str, Any]) -> bool:
    """Whether an object has no queue name; an empty one is none."""
    return not (labels_of(obj).get(QUEUE_LABEL) or annotations_of(obj).get(QUEUE_LABEL))


def with_default_queue(obj: Obj) -> Obj:
    """The object with the name of the default queue."""
    return with_label(obj, QUEUE_LABEL, DEFAULT_QUEUE)


class DefaultQueues:
    """Knows the namespaces that have a LocalQueue `default`.

    Args:
        queues: all LocalQueues.
    """

    def __init__(self, queues: Informer) -> None:
        self._queues = queues

    @property
    def namespaces(self) -> frozenset[str] | None:
        """Those with such a LocalQueue; None while they are not known yet."""
        if not self._queues.synced:
            return None
        return frozenset(key.namespace for key in self._queues.store if key.name == DEFAULT_QUEUE)

    def given(self, obj: Obj, namespace: str) -> Obj:
        """An object with the queue name that it is to have; the same object if it keeps its own or
        is to have none.

        Args:
            obj: the raw object, for which no ancestor is queued.
            namespace: where it is.

        Raises:
            Unavailable: LocalQueues are not known yet.
        """
        if not names_no_queue(obj):
            return obj
        if not self._queues.synced:
            raise Unavailable(
                f'it is not known yet whether the namespace "{namespace}" has a LocalQueue '
                f'"{DEFAULT_QUEUE}"; try again'
            )
        return with_default_queue(obj) if self.has(namespace) else obj

    def has(self, namespace: str) -> bool:
        """Whether a namespace is known to have such a LocalQueue."""
        return self._queues.store.get(ObjectKey(namespace, DEFAULT_QUEUE)) is not None

    async def follow(self, changed: Callable[[], None]) -> None:
        """Calls `changed` once they are known, and when one comes or goes, until cancelled."""

        def look(delta: Delta[Obj]) -> None:
            if delta.key.name == DEFAULT_QUEUE and (delta.old is None or delta.new is None):
                changed()

        await self._queues.wait_synced()
        remove = self._queues.add_handler(look)
        try:
            changed()
            await anyio.sleep_forever()
        finally:
            remove()
