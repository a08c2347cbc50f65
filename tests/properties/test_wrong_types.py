"""Whatever JSON is sent to a built-in kind, it never gets the answer that the server has failed."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.conformance.fuzz.making import SAMPLES

from kueuelib.api.meta import Obj, ObjectKey
from kueuelib.api.patch import merge_patch
from kueuelib.embedded.http import views
from kueuelib.embedded.http.answers import MediaForm
from kueuelib.embedded.registry.builtin_kinds import builtin_kinds
from kueuelib.embedded.registry.kinds import Kind
from kueuelib.embedded.schema.messages import Field, json_fields, message_name
from kueuelib.embedded.server import builtin_rules, new_service
from kueuelib.embedded.service import ApiService
from kueuelib.embedded.verbs import WriteOptions
from kueuelib.errors import ApiError, ServerError
from kueuelib.runtime.queries import PatchType

KINDS = builtin_kinds(builtin_rules())
NUMBERS = (0, -1, 1, 5, 2**31 - 1, 2**31, -(2**63), 2**63, 1.5)
TEXTS = ("", "x", "@@@", "5", "1Gi", "é\u0000", "a/b", "a.b.c", "../..", "x" * 300, "True", "v1")
WORDS = ("Always", "Never", "Indexed", "Exists", "In", "NoSchedule", "Container", "Namespaced")
TIMES = ("2020-01-01T00:00:00Z", "2020-01-01T00:00:00.5+01:00", "0000-00-00T00:00:00Z", "now")
TAME: Mapping[str, tuple[Any, ...]] = {
    "i": (0, -1, 1, 5, 2**31 - 1),
    "n": (0, 1.5, -1),
    "q": ("0", "1", "-1", "1Gi", "1500m", 5),
    "t": TIMES[:2],
    "u": TIMES[:2],
    "B": ("", "eA=="),
    "o": (1, -1, "50%", "x"),
}
SCALARS = (None, True, False, [], {}, [None], {"": None}, *NUMBERS, *TEXTS)


NOTHING = Field(0, "nothing", "", "s")
CRD = {
    "group": "a.b",
    "scope": "Namespaced",
    "names": {"plural": "things", "kind": "Thing"},
    "versions": [
        {
            "name": "v1",
            "served": True,
            "storage": True,
            "schema": {"openAPIV3Schema": {"type": "object"}},
        }
    ],
}
NEW_EVENT: Obj = {
    "eventTime": "2020-01-01T00:00:00.000000Z",
    "reportingController": "example.com/tests",
    "reportingInstance": "tests",
    "action": "Trying",
    "reason": "Tried",
    "type": "Normal",
}


def valid_body(kind: Kind) -> Obj:
    """What the first sample of a kind says, without metadata; some kinds need to say nothing."""
    if kind.kind == "CustomResourceDefinition":
        return {"spec": CRD}
    if kind.group == "events.k8s.io":
        return NEW_EVENT
    known = SAMPLES.get(kind.plural)
    if known is None:
        return {}
    first = json.dumps(known["samples"][0]).replace("{namespace}", "default")
    return {name: value for name, value in json.loads(first).items() if name != "metadata"}


class Sender:
    """Makes objects whose fields exist, mostly of the right types, with senseless values."""

    def __init__(self, seed: int, wrong: float) -> None:
        self.chance = Random(seed)
        self.wrong = wrong

    def anything(self, depth: int = 0) -> Any:
        roll = self.chance.random()
        if depth < 3 and roll < 0.15:
            return [self.anything(depth + 1) for _ in range(self.chance.randrange(3))]
        if depth < 3 and roll < 0.3:
            return {self.chance.choice(TEXTS): self.anything(depth + 1)}
        return self.chance.choice(SCALARS)

    def value(self, field: Field, depth: int) -> Any:
        if self.chance.random() < self.wrong:
            return self.anything()
        if field.form == "+":
            return [self.one(field, depth) for _ in range(self.chance.randrange(3))]
        if field.form == "%":
            keys = [self.chance.choice((*TEXTS, "cpu", "memory")) for _ in range(2)]
            return {key: self.one(field, depth) for key in keys}
        return self.one(field, depth)

    def one(self, field: Field, depth: int) -> Any:
        if field.message:
            return self.message(field.message, depth + 1)
        if field.type == "S":
            return self.message("apiextensions.JSONSchemaProps", depth + 1)
        if self.wrong == 0 and field.type in TAME:
            return self.chance.choice(TAME[field.type])
        if field.type in "in":
            return self.chance.choice(NUMBERS)
        if field.type == "b":
            return self.chance.random() < 0.5
        if field.type in "tu":
            return self.chance.choice(TIMES)
        if field.type in "qo":
            return self.chance.choice((*NUMBERS, *TEXTS))
        if field.type in "rF" or field.type.startswith("&"):
            return self.anything()
        return self.chance.choice((*TEXTS, *WORDS))

    def message(self, name: str, depth: int = 0) -> Obj:
        likely = (0.9, 0.6, 0.4, 0.3, 0.2)[depth] if depth < 5 else 0.0
        return {
            field.name: self.value(field, depth)
            for field in json_fields(name)
            if self.chance.random() < likely
        }

    def obj(self, kind: Kind, *, named: bool = True) -> Obj:
        found = self.message(message_name(kind.group, kind.kind))
        meta = found.get("metadata")
        if named and isinstance(meta, dict) and self.chance.random() < 0.8:
            meta = {"labels": meta.get("labels"), "annotations": meta.get("annotations")}
        if named:
            namespace = {"namespace": "default"} if kind.namespaced else {}
            meta = {**(meta if isinstance(meta, dict) else {}), "name": "thing", **namespace}
            found["metadata"] = {key: each for key, each in meta.items() if each is not None}
        return found

    def graft(self, base: Obj, message: str) -> Obj:
        """The object with one field changed, somewhere inside."""
        field = self.chance.choice(tuple(json_fields(message)) or (NOTHING,))
        inner = base.get(field.name)
        new: Any
        if not field.message or self.chance.random() < 0.1:
            new = self.value(field, 5)
        elif field.form == "+":
            first, *rest = inner or [{}]
            new = [self.graft(first, field.message), *rest]
        elif field.form == "%":
            new = {"key": self.graft({}, field.message)}
        else:
            new = self.graft(inner or {}, field.message)
        return {**base, field.name: new}

    def patch(self, kind: Kind, type_: PatchType) -> Any:
        if type_ is not PatchType.JSON:
            return self.obj(kind, named=self.chance.random() < 0.5)
        return [self.operation(self.obj(kind)) for _ in range(1 + self.chance.randrange(3))]

    def operation(self, like: Any) -> Obj:
        path = ""
        while isinstance(like, dict) and like and self.chance.random() < 0.8:
            key = self.chance.choice(list(like))
            like, path = like[key], f"{path}/{key}"
        name = self.chance.choice(("add", "replace", "remove", "test", "copy", "move", "no"))
        found = {"op": name, "path": path, "value": self.anything(), "from": "/metadata/labels"}
        if self.chance.random() < 0.1:
            found[self.chance.choice(list(found))] = self.anything()
        return found


class NoHooks:
    async def call(self, *_: object, **__: object) -> Any:
        raise AssertionError("no webhook was made")


async def attempt(call: Any) -> Any:
    """What the call gives, None when it is refused in order."""
    try:
        return await call
    except ServerError:
        raise
    except ApiError:
        return None


async def send(service: ApiService, kind: Kind, seed: int, wrong: float) -> bool:
    sender = Sender(seed, wrong)
    resource = kind.resource("v1")
    version = kind.versions["v1"]
    name = "things.a.b" if kind.kind == "CustomResourceDefinition" else "thing"
    key = ObjectKey("default" if kind.namespaced else "", name)
    meta = {"name": key.name, "namespace": key.namespace}
    valid = {**valid_body(kind), "metadata": meta}
    await attempt(service.create(resource, sender.obj(kind)))
    await attempt(service.create(resource, merge_patch(valid, sender.obj(kind))))
    await attempt(service.create(resource, valid))
    if await attempt(service.get(resource, key)) is None:
        return False
    message = message_name(kind.group, kind.kind)
    dry = WriteOptions(dry_run=True)
    for _ in range(8):
        grafted = sender.graft(valid, message)
        await attempt(service.create(resource, grafted, namespace=key.namespace, options=dry))
        await attempt(service.patch(resource, key, grafted, PatchType.MERGE))
        if version.status:
            await attempt(service.patch(resource, key, grafted, subresource="status"))
    for type_ in (PatchType.MERGE, PatchType.STRATEGIC, PatchType.JSON):
        await attempt(service.patch(resource, key, sender.patch(kind, type_), type_))
        if version.status:
            body = sender.patch(kind, type_)
            await attempt(service.patch(resource, key, body, type_, subresource="status"))
    await attempt(service.update(resource, merge_patch(valid, sender.obj(kind))))
    listing = await service.list(resource)
    wanted = MediaForm(view="Table", version="v1")
    now = time.time()
    rows = [views.row(kind, version, wanted, now, "Object", each) for each in listing.items]
    views.table(kind, version, rows, wanted, {})
    await attempt(service.delete(resource, key))
    return True


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.kind)
@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 2**32), wrong=st.sampled_from((0.0, 0.02, 0.2)))
def test_no_json_breaks_the_server(kind: Kind, seed: int, wrong: float) -> None:
    async def run() -> None:
        service = await new_service(NoHooks())
        assert await send(service, kind, seed, wrong)
        await service.close()

    asyncio.run(run())
