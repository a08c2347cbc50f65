"""Events do not stay for ever."""

from __future__ import annotations

from typing import Any

from kueuelib.api.kinds import EVENTS
from kueuelib.api.meta import Obj, format_time
from kueuelib.embedded.server import LIFETIME, expire_events, new_service


class NoHooks:
    async def call(self, *_: object, **__: object) -> Any:
        raise AssertionError("there are no webhooks")


def event(name: str, last: float) -> Obj:
    return {
        "metadata": {"name": name, "namespace": "default"},
        "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"},
        "lastTimestamp": format_time(last),
    }


async def test_events_expire_an_hour_after_they_were_last_written() -> None:
    now = 1.7e9
    service = await new_service(NoHooks(), now=lambda: now)
    await service.create(EVENTS, event("old", now))
    await service.create(EVENTS, event("again", now + 10))
    now += LIFETIME - 1
    assert await expire_events(service) == 0
    now += 2
    revision = service.storage.revision
    assert await expire_events(service) == 1
    assert service.storage.revision == revision + 1
    assert [each["metadata"]["name"] for each in (await service.list(EVENTS)).items] == ["again"]
    await service.close()
