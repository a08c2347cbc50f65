"""Random histories of one server: watchers see exactly the changes, and chance plays no part."""

from __future__ import annotations

import asyncio
from typing import Any

import attrs
from hypothesis import given, settings
from hypothesis import strategies as st

from kueuelib.api.kinds import CRDS
from kueuelib.api.meta import ObjectKey, Resource
from kueuelib.embedded.admission.plugin import UserInfo
from kueuelib.embedded.server import new_service
from kueuelib.embedded.service import ApiService
from kueuelib.embedded.verbs import (
    DeleteOptions,
    ListOptions,
    WatchOptions,
    WriteOptions,
)
from kueuelib.errors import ApiError
from kueuelib.runtime.queries import PatchType

BOXES = Resource("example.com", "v1", "boxes", "Box", namespaced=True)
NAMES, COLORS, MANAGERS = ("a", "b", "c"), ("red", "blue"), ("one", "two", "suite")
ITEM = {
    "type": "object",
    "required": ["name"],
    "properties": {"name": {"type": "string"}, "size": {"type": "integer"}},
}
SCHEMA = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "properties": {
                "x": {"type": "integer", "maximum": 3},
                "y": {"type": "string", "default": "d"},
                "items": {
                    "type": "array",
                    "items": ITEM,
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["name"],
                },
            },
        },
        "status": {"type": "object", "properties": {"x": {"type": "integer"}}},
    },
}
CRD = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "boxes.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"plural": "boxes", "kind": "Box"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": SCHEMA},
                "subresources": {"status": {}},
            }
        ],
    },
}

names = st.sampled_from(NAMES)
managers = st.sampled_from(MANAGERS)
items = st.lists(
    st.fixed_dictionaries({"name": st.sampled_from("pq")}, optional={"size": st.integers(0, 1)}),
    max_size=2,
    unique_by=lambda item: item["name"],
)
specs = st.fixed_dictionaries(
    {}, optional={"x": st.integers(0, 4), "y": st.sampled_from("uv"), "items": items}
)
labels = st.fixed_dictionaries({}, optional={"color": st.sampled_from(COLORS)})
finalizers = st.sampled_from(([], ["example.com/hold"]))
bodies = st.fixed_dictionaries(
    {},
    optional={
        "spec": specs,
        "metadata": st.fixed_dictionaries(
            {}, optional={"labels": labels, "finalizers": finalizers}
        ),
        "status": st.fixed_dictionaries({"x": st.integers(0, 2)}),
    },
)
patches = bodies | st.sampled_from(
    (
        {"spec": None},
        {"spec": {"x": None}},
        {"metadata": {"labels": None}},
        {"metadata": {"finalizers": None}},
    )
)
steps = st.one_of(
    st.tuples(st.just("create"), names, managers, bodies),
    st.tuples(st.just("apply"), names, managers, bodies, st.booleans()),
    st.tuples(st.just("merge"), names, managers, patches),
    st.tuples(st.just("status"), names, managers, st.integers(0, 2)),
    st.tuples(
        st.just("json"),
        names,
        managers,
        st.sampled_from(
            (
                [{"op": "add", "path": "/spec/x", "value": 2}],
                [{"op": "remove", "path": "/metadata/labels/color"}],
                [{"op": "test", "path": "/spec/x", "value": 2}],
            )
        ),
    ),
    st.tuples(st.just("delete"), names, st.sampled_from((None, "Foreground", "Orphan"))),
    st.tuples(st.just("clear"), st.sampled_from(("", "color=red"))),
    st.tuples(st.just("watch"), st.sampled_from(("", "color=red", "color!=red", "!color"))),
    st.tuples(st.just("leave"), st.integers(0, 3)),
)
histories = st.lists(steps, max_size=25)


class NoHooks:
    async def call(self, *_: object, **__: object) -> Any:
        raise AssertionError("there are no webhooks")


async def started() -> ApiService:
    service = await new_service(NoHooks(), now=lambda: 1_000_000_000.0)
    await service.create(CRDS, CRD)
    return service


async def do(service: ApiService, step: Any) -> Any:
    """One step; what it answered."""
    verb, name, *rest = step
    key = ObjectKey("default", name)
    try:
        if verb == "delete":
            return await service.delete(BOXES, key, DeleteOptions(propagation=rest[0]))
        if verb == "clear":
            options = ListOptions(label_selector=name)
            return list((await service.delete_collection(BOXES, "default", options)).items)
        manager, body, *force = rest
        options = WriteOptions(
            caller=UserInfo("somebody"), field_manager=manager, force=bool(force and force[0])
        )
        if verb == "create":
            meta = {**body.get("metadata", {}), "name": name, "namespace": "default"}
            return await service.create(BOXES, {**body, "metadata": meta}, options=options)
        if verb == "apply":
            head = {"apiVersion": "example.com/v1", "kind": "Box"}
            return await service.patch(
                BOXES, key, {**head, **body}, PatchType.APPLY, options=options
            )
        if verb == "status":
            patch = {"status": {"x": body}}
            return await service.patch(BOXES, key, patch, subresource="status", options=options)
        type_ = PatchType.JSON if verb == "json" else PatchType.MERGE
        return await service.patch(BOXES, key, body, type_, options=options)
    except ApiError as error:
        return error.status()


State = dict[str, dict[str, Any]]


async def state_of(service: ApiService, selector: str = "") -> State:
    found = await service.list(BOXES, "default", ListOptions(label_selector=selector))
    return {obj["metadata"]["name"]: obj for obj in found.items}


@attrs.define
class Watcher:
    """What one watcher has seen, and what it should have seen."""

    selector: str
    since: str
    seen: State
    expected: list[tuple[str, str]] = attrs.field(factory=list)

    def matches(self, obj: Any) -> bool:
        if obj is None:
            return False
        color = (obj["metadata"].get("labels") or {}).get("color")
        return {
            "": True,
            "color=red": color == "red",
            "color!=red": color != "red",
            "!color": color is None,
        }[self.selector]

    def expect(self, before: State, after: State) -> None:
        for name in sorted(before.keys() | after.keys()):
            old, new = before.get(name), after.get(name)
            if old == new:
                continue
            was, is_ = self.matches(old), self.matches(new)
            if was or is_:
                type_ = "MODIFIED" if was and is_ else "ADDED" if is_ else "DELETED"
                self.expected.append((type_, name))

    async def check(self, service: ApiService) -> None:
        """Reads what has come since it began: every change once, and in the end the same state."""
        options = WatchOptions(
            label_selector=self.selector, resource_version=self.since, timeout=0.0
        )
        got, last = [], int(self.since)
        async for event in service.watch(BOXES, "default", options):
            meta = event.object["metadata"]
            assert int(meta["resourceVersion"]) > last
            last = int(meta["resourceVersion"])
            got.append((event.type, meta["name"]))
            if event.type == "DELETED":
                del self.seen[meta["name"]]
            else:
                self.seen[meta["name"]] = event.object
        assert got == self.expected
        assert self.seen == await state_of(service, self.selector)


async def watched(history: list[Any]) -> None:
    service = await started()
    watchers: list[Watcher] = []
    for step in history:
        if step[0] == "watch":
            page = await service.list(BOXES, "default", ListOptions(label_selector=step[1]))
            seen = {obj["metadata"]["name"]: obj for obj in page.items}
            watchers.append(Watcher(step[1], page.resource_version, seen))
        elif step[0] == "leave":
            if step[1] < len(watchers):
                await watchers.pop(step[1]).check(service)
        elif step[0] == "clear":
            # one change after the other, as a watcher sees them
            for name in sorted(await state_of(service, step[1])):
                await told(service, ("delete", name, None), watchers)
        else:
            await told(service, step, watchers)
    for watcher in watchers:
        await watcher.check(service)
    await service.close()


async def told(service: ApiService, step: Any, watchers: list[Watcher]) -> None:
    before = await state_of(service)
    await do(service, step)
    after = await state_of(service)
    for watcher in watchers:
        watcher.expect(before, after)


@settings(max_examples=60, deadline=None)
@given(histories)
def test_watchers_that_come_and_go_see_exactly_the_changes(history):
    asyncio.run(watched(history))


async def answers(history: list[Any]) -> list[Any]:
    service = await started()
    found = [await do(service, step) for step in history if step[0] not in ("watch", "leave")]
    found.append(await state_of(service))
    await service.close()
    uids: dict[str, int] = {}
    return [_without_chance(each, uids) for each in found]


def _without_chance(value: Any, uids: dict[str, int]) -> Any:
    if isinstance(value, dict):
        return {
            key: uids.setdefault(each, len(uids)) if key == "uid" else _without_chance(each, uids)
            for key, each in value.items()
        }
    if isinstance(value, list):
        return [_without_chance(each, uids) for each in value]
    return value


@settings(max_examples=100, deadline=None)
@given(histories)
def test_two_servers_with_the_same_history_answer_the_same(history):
    assert asyncio.run(answers(history)) == asyncio.run(answers(history))


@settings(max_examples=100, deadline=None)
@given(histories)
def test_what_is_stored_is_always_valid_and_complete(history):
    async def run() -> None:
        service = await started()
        generations: dict[str, tuple[int, Any]] = {}
        for step in history:
            if step[0] in ("watch", "leave"):
                continue
            await do(service, step)
            for obj in (await state_of(service)).values():
                meta, spec = obj["metadata"], obj.get("spec")
                assert spec is None or spec.get("y") is not None
                assert spec is None or spec.get("x", 0) <= 3
                assert {"uid", "resourceVersion", "creationTimestamp"} <= meta.keys()
                before = generations.get(meta["uid"])
                if before is not None and not meta.get("deletionTimestamp"):
                    changed = before[1] != spec
                    assert meta["generation"] == before[0] + changed
                generations[meta["uid"]] = (meta["generation"], spec)
        await service.close()

    asyncio.run(run())
