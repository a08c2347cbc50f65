"""Sends what `patches` says."""

from __future__ import annotations

from kueuelib.api.kinds import WORKLOADS
from kueuelib.api.meta import Obj, key_of
from kueuelib.runtime.client import Client, PatchType
from kueuelib.workload.patches import StatusWrite, status_writes

_PATCH_TYPES = {"apply": PatchType.APPLY, "merge": PatchType.MERGE}


async def write_status(client: Client, old: Obj, new: Obj) -> Obj:
    """Makes the stored status of a Workload that of `new`; no call when `old` says the same.

    Args:
        client: speaks to the API server.
        old: the Workload as it was read.
        new: the same Workload after a step of `transitions`.

    Returns:
        The Workload as the server has it now.

    Raises:
        Conflict: the Workload changed since it was read. When two patches are needed, the first may
        have been done;
            what it did is harmless without the second.
        NotFound: it is gone.
        ApiError: the server refuses.
        TransportError: no answer; the write may have happened.
    """
    found = old
    for number, write in enumerate(status_writes(old, new)):
        ready = write.at(found["metadata"]["resourceVersion"]) if number else write
        found = await send(client, old, ready)
    return found


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
