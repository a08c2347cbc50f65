"""Our finalizer goes on and off exactly the object that was read."""

from __future__ import annotations

from typing import Any

import pytest

from kueuelib.api.kinds import RESOURCE_FLAVORS
from kueuelib.api.meta import ObjectKey
from kueuelib.api.names import IN_USE_FINALIZER
from kueuelib.controllers.finalizers import add_finalizer, drop_finalizer
from kueuelib.errors import Conflict

FLAVOR = {"metadata": {"name": "spot", "uid": "u", "resourceVersion": "7", "finalizers": ["other"]}}
HELD = {"metadata": {**FLAVOR["metadata"], "finalizers": ["other", IN_USE_FINALIZER]}}


class Informer:
    """Notes what it is told and asked."""

    resource = RESOURCE_FLAVORS

    def __init__(self) -> None:
        self.learned: list[Any] = []
        self.read: list[ObjectKey] = []

    def learn(self, answer: Any) -> None:
        self.learned.append(answer)

    async def refresh(self, key: ObjectKey) -> None:
        self.read.append(key)


class Client:
    """Answers patches."""

    def __init__(self, error: Exception | None = None) -> None:
        self.bodies: list[Any] = []
        self._error = error

    async def patch(self, *args: Any) -> Any:
        self.bodies.append(args[2])
        if self._error is not None:
            raise self._error
        return {"kind": "ResourceFlavor"}


@pytest.mark.parametrize(
    ("write", "flavor", "left"),
    [
        (add_finalizer, FLAVOR, ["other", IN_USE_FINALIZER]),
        (drop_finalizer, HELD, ["other"]),
    ],
)
async def test_only_the_finalizers_of_the_state_that_was_read_are_sent(write, flavor, left):
    client, informer = Client(), Informer()
    assert await write(client, informer, flavor)
    identity = {"uid": "u", "resourceVersion": "7"}
    assert client.bodies == [{"metadata": {**identity, "finalizers": left}}]
    assert informer.learned == [{"kind": "ResourceFlavor"}]
    assert not informer.read


async def test_after_a_conflict_the_object_is_read_anew():
    informer = Informer()
    with pytest.raises(Conflict):
        await add_finalizer(Client(Conflict("it changed")), informer, FLAVOR)
    assert informer.read == [ObjectKey("", "spot")]
