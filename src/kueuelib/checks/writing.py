"""Writes answers of a check into its entry of a Workload, by server-side apply (KEP-993)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from kueuelib.api.meta import Obj, key_of
from kueuelib.checks import moves
from kueuelib.checks.definition import Check
from kueuelib.errors import ApiError, NotFound
from kueuelib.machinery.event_series import EventType
from kueuelib.runtime.client import Client
from kueuelib.runtime.informer import Informer
from kueuelib.runtime.queries import PatchType
from kueuelib.workload.writer import on_newest

if TYPE_CHECKING:
    from kueuelib.runtime.events import EventRecorder

NEWER_FIELDS = ("reason", "requeueAfterSeconds", "retryCount")
"""Fields of an entry that the CRDs of older managers do not have."""

_EVENTS: dict[str, EventType] = {"Ready": "Normal", "Retry": "Normal", "Rejected": "Warning"}


class EntryWriter:
    """Writes entries, and passes the answers of the server to the informer.

    Args:
        check: whose entries.
        client: writes.
        workloads: the informer of Workloads.
        mine: the names of the AdmissionChecks of the check.
        recorder: for events about Workloads.
    """

    def __init__(
        self,
        check: Check,
        client: Client,
        workloads: Informer,
        mine: Callable[[], frozenset[str]],
        recorder: EventRecorder,
    ) -> None:
        self._check = check
        self._client = client
        self._workloads = workloads
        self._mine = mine
        self._recorder = recorder
        self._plain_entries = False

    async def write(
        self,
        wl: Obj,
        name: str,
        change: Callable[[Obj, Mapping[str, Any]], Obj | None],
        still: Callable[[Obj], bool],
    ) -> Obj | None:
        """Changes one entry on the newest object; returns that object, or None if it is too late.

        Args:
            wl: the raw Workload.
            name: the AdmissionCheck.
            change: the new entry for the newest object and its entry; None leaves it.
            still: whether the decision still applies to the newest object.

        Raises:
            ApiError: it could not be written.
            TransportError: the same.
        """
        uid = wl["metadata"]["uid"]
        written: Obj | None = None

        async def attempt(newest: Obj) -> Obj | None:
            nonlocal written
            written = None
            if newest["metadata"]["uid"] != uid or not still(newest):
                return None
            entry = moves.entry_of(newest, name)
            if entry is None:
                return None
            changed = change(newest, entry)
            if changed is None:
                written = newest
                return None
            written = await self._send(newest, name, changed)
            self._workloads.learn(written)
            self._report(written, name, entry, changed)
            return written

        try:
            await on_newest(self._workloads, key_of(wl), attempt)
        except NotFound:
            return None
        return written

    async def _send(self, wl: Obj, name: str, entry: Obj) -> Obj:
        if self._plain_entries:
            entry = {field: value for field, value in entry.items() if field not in NEWER_FIELDS}
        body = moves.apply_body(wl, self._mine(), {name: entry})
        try:
            return await self._client.patch(
                self._workloads.resource,
                key_of(wl),
                body,
                PatchType.APPLY,
                subresource="status",
                field_manager=self._check.field_manager,
                force=True,
            )
        except ApiError as error:
            unknown = "not declared in schema" in error.message
            if self._plain_entries or not unknown or not {*NEWER_FIELDS} & entry.keys():
                raise
        self._plain_entries = True
        return await self._send(wl, name, entry)

    def _report(self, wl: Obj, name: str, old: Mapping[str, Any], new: Obj) -> None:
        severity = _EVENTS.get(new["state"])
        if severity is None or old.get("state") == new["state"]:
            return
        text = f": {new['message']}" if new["message"] else ""
        self._recorder.event(
            wl,
            severity,
            f"AdmissionCheck{new['state']}",
            f"Check {name} is {new['state']}{text}"[:1000],
            component=self._check.controller_name,
        )
