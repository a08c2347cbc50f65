"""Writes the statuses of Workloads with the patches of `states`, in the version that is served.

So readers of the informer's store never act on a state older than a write from here. After a
conflict, the object is read again and the change is repeated on it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import attrs

from kueuelib.api.answers import expect_change
from kueuelib.api.kinds import WORKLOADS
from kueuelib.api.meta import Obj, ObjectKey, key_of
from kueuelib.errors import Conflict, MethodNotAllowed, NotFound
from kueuelib.runtime.client import Client
from kueuelib.runtime.informer import Informer
from kueuelib.runtime.queries import PatchType
from kueuelib.workload.states import StatusWrite, status_writes

CONFLICTS = 4
"""How often a change is repeated at once on a newer object."""
_PATCH_TYPES = {"apply": PatchType.APPLY, "merge": PatchType.MERGE}


@attrs.frozen(eq=False)
class StatusWriter:
    """Writes statuses.

    Attributes:
        client: writes.
        workloads: the informer of Workloads, which learns the answers.
    """

    client: Client
    workloads: Informer

    def newest(self, key: ObjectKey) -> Obj | None:
        """The workload as it is known, including our own last write."""
        return self.workloads.store.get(key)

    async def read(self, key: ObjectKey) -> Obj:
        """Reads the workload from the server, and passes it to the informer.

        Raises:
            NotFound: it is gone.
            ApiError: the server refuses.
            TransportError: no answer.
        """
        workload = await self.workloads.refresh(key)
        if workload is None:
            raise NotFound(f"workload {key} is gone")
        return workload

    async def store(self, old: Obj, new: Obj) -> Obj:
        """Stores the status of `new`; raises like `write_status`.

        After a conflict the newest state is known.
        """
        try:
            stored = await write_status(self.client, old, new, self._learn)
        except Conflict:
            await self.workloads.refresh(key_of(old))
            raise
        except NotFound as error:
            refuse_lost_status(error, old, await self.workloads.refresh(key_of(old)))
            raise
        return stored

    async def change(
        self,
        key: ObjectKey,
        change: Callable[[Obj], Obj | None],
        *,
        conflict: Callable[[], None] = lambda: None,
    ) -> Obj | None:
        """Write a status; after each conflict it is computed again from the newest object.

        Args:
            key: the workload.
            change: returns the state to write; None, or the same object, for nothing.
            conflict: called after each conflict.

        Returns:
            The server's answer; None if there was nothing to write.

        Raises:
            NotFound: it is gone.
            Conflict: every try had a conflict.
            ApiError: the server refuses.
            TransportError: no answer.
        """

        async def attempt(wl: Obj) -> Obj | None:
            new = change(wl)
            if new is None or new is wl:
                return None
            return await write_status(self.client, wl, new, self._learn)

        return await on_newest(self.workloads, key, attempt, conflict=conflict)

    def _learn(self, answer: Obj) -> None:
        self.workloads.learn(answer, shared=True)


async def on_newest(
    workloads: Informer,
    key: ObjectKey,
    attempt: Callable[[Obj], Awaitable[Obj | None]],
    *,
    conflict: Callable[[], None] = lambda: None,
) -> Obj | None:
    """Tries a write on the newest object; after a conflict, on the object that is read again.

    Args:
        workloads: knows the newest object.
        key: the workload.
        attempt: writes, learns the server's answer and returns it; None if there is nothing to
            write.
        conflict: called after each conflict.

    Raises:
        NotFound: it is gone.
        Conflict: every try had a conflict.
        ApiError: the server refuses.
        TransportError: no answer.
    """
    wl = workloads.store.get(key) or await workloads.refresh(key)
    for _ in range(CONFLICTS):
        if wl is None:
            break
        try:
            return await attempt(wl)
        except Conflict:
            conflict()
            wl = await workloads.refresh(key)
        except NotFound as error:
            newer = await workloads.refresh(key)
            if newer is not None and _version(newer) == _version(wl):
                refuse_lost_status(error, wl, newer)
                raise
            wl = newer
    if wl is None:
        raise NotFound(f"workload {key} is gone")
    raise Conflict(f"workload {key} changes too fast to be written")


def refuse_lost_status(error: NotFound, written: Obj, live: Obj | None) -> None:
    """Refuse a write to a kind without the status subresource: like a gone object, it answers 404.

    Args:
        error: the answer to a write of the status.
        written: the object that was meant.
        live: the object as it was read since; None if it is gone.

    Raises:
        MethodNotAllowed: the object is there, so its status cannot be written.
    """
    if live is None or error.answer is None:
        return
    if live["metadata"]["uid"] == written["metadata"]["uid"]:
        text = f"its kind has no subresource status in this cluster: {error.message}"
        raise MethodNotAllowed(text) from error


def _version(wl: Obj) -> str:
    return str(wl["metadata"]["resourceVersion"])


async def write_status(
    client: Client, old: Obj, new: Obj, learn: Callable[[Obj], None] = lambda _: None
) -> Obj:
    """Stores the status of `new`, without a call if `old` has the same.

    Args:
        client: for the API server.
        old: the Workload as it was read.
        new: the same Workload after a step of `transitions`.
        learn: receives every answer.

    Returns:
        The Workload as the server has it now.

    Raises:
        Conflict: the Workload changed since it was read. When two patches are needed, the first may
            have been stored; it is harmless without the second.
        NotFound: it is gone.
        ApiError: the server refuses.
        TransportError: no answer; the write may have happened.
    """
    current = old
    for number, write in enumerate(status_writes(old, new)):
        ready = write.at(current["metadata"]["resourceVersion"]) if number else write
        current = await send(client, old, ready)
        learn(current)
    if current is not old:
        expect_change(old, {"status": new.get("status")}, current)
    return current


async def send(client: Client, wl: Obj, write: StatusWrite) -> Obj:
    """One patch of a Workload's status; errors as `write_status`."""
    version = wl["apiVersion"].rpartition("/")[2]
    return await client.patch(
        WORKLOADS.at(version),
        key_of(wl),
        write.body,
        _PATCH_TYPES[write.style],
        subresource="status",
        field_manager=write.field_manager,
        force=write.style == "apply",
    )
