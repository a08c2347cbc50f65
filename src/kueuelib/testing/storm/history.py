"""The committed writes as raw JSON: the only input of the laws."""

from __future__ import annotations

from typing import Any

import attrs

Obj = dict[str, Any]
"""A raw Kubernetes object."""


@attrs.frozen
class Commit:
    """One write that the store accepted.

    Attributes:
        at: seconds since the epoch, by the server's clock.
        revision: the store's revision, unique and growing.
        actor: the process that sent the request (`manager-1`, `user`, ...); `server` is the
            simulated cluster.
        resource: plural and group, for example `workloads.kueue.x-k8s.io`, `jobs.batch`, `pods`.
        namespace: empty for objects of the cluster.
        name: of the object.
        old: the stored state before, None: the object was created.
        new: the stored state after, None: the object was removed.
    """

    at: float
    revision: int
    actor: str
    resource: str
    namespace: str
    name: str
    old: Obj | None
    new: Obj | None

    @property
    def key(self) -> tuple[str, str, str]:
        """Resource, namespace and name."""
        return (self.resource, self.namespace, self.name)

    @property
    def present(self) -> Obj:
        """The newest known state; for a removed object, its last one."""
        state = self.new if self.new is not None else self.old
        assert state is not None, "a commit has a state before or after it"
        return state

    @property
    def title(self) -> str:
        """The name of the object in messages: `jobs.batch default/one`."""
        place = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return f"{self.resource} {place}"
