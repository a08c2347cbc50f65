"""Following a job with fewer rights than its place in the queue needs."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import kueuelib
from kueuelib import Progress, State
from kueuelib.api.crd import crd
from kueuelib.api.kinds import CRDS, PODS, ROLE_BINDINGS, ROLES, WORKLOADS
from kueuelib.api.meta import ObjectKey
from kueuelib.embedded import ApiServer
from kueuelib.runtime.queries import PatchType

POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {
        "name": "p",
        "namespace": "default",
        "labels": {"kueue.x-k8s.io/queue-name": "team"},
    },
    "spec": {
        "schedulingGates": [{"name": "kueue.x-k8s.io/admission"}],
        "containers": [{"name": "c", "image": "i"}],
    },
}
META = {"name": "pods", "namespace": "default"}
ROLE = {
    "metadata": META,
    "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}],
}
GROUP = "rbac.authorization.k8s.io"
BINDING = {
    "metadata": META,
    "roleRef": {"apiGroup": GROUP, "kind": "Role", "name": "pods"},
    "subjects": [{"apiGroup": GROUP, "kind": "User", "name": "ann"}],
}


async def test_without_rights_for_workloads_the_pod_tells_whether_it_waits() -> None:
    seen: list[Progress] = []
    async with ApiServer(authorization="rbac") as server, server.client() as admin:
        await admin.create(CRDS, crd(WORKLOADS.kind))
        await admin.create(ROLES, ROLE)
        await admin.create(ROLE_BINDINGS, BINDING)
        await admin.create(PODS, POD)
        async with (
            server.client(server.add_user("ann")) as ann,
            asyncio.timeout(60),
            contextlib.aclosing(kueuelib.watch(POD, client=ann)) as states,
        ):
            async for progress in states:
                seen.append(progress)
                if progress.state is not State.QUEUED:
                    break
                change: dict[str, Any] = {"spec": {"schedulingGates": None}}
                await admin.patch(PODS, ObjectKey("default", "p"), change, PatchType.MERGE)
    assert [one.state for one in seen] == [State.QUEUED, State.ADMITTED]
    assert 'cannot list resource "workloads"' in seen[0].text
