"""What authors of operators get wrong: each mistake is named, and none stops the program."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import anyio
import pytest
from structlog.testing import capture_logs

from kueuelib.errors import (
    ConfigError,
    FieldError,
    Forbidden,
    InvalidObject,
    ServerError,
    TerminalError,
)
from kueuelib.runtime import (
    Client,
    ConditionedStatus,
    Context,
    KubeObject,
    Obj,
    ObjectKey,
    Operator,
    PatchType,
    Result,
    Struct,
    crd,
    frozen,
    kinds,
)
from kueuelib.testing import eventually, running, settled

MAPS = kinds.CONFIG_MAPS


@frozen
class Spec(Struct):
    """What is asked for."""

    size: str = "a"


@frozen
class Status(ConditionedStatus):
    """What was seen."""

    note: str = ""


@crd("example.com", "v1", plural="things")
@frozen
class Thing(KubeObject):
    """A thing."""

    spec: Spec = Spec()
    status: Status = Status()


@crd("example.com", "v1", plural="places", namespaced=False)
@frozen
class Place(KubeObject):
    """A thing without a namespace."""


async def good(found: Thing, context: Context) -> None:
    """Do nothing."""


def problems_in(lines: list[Any]) -> list[str]:
    return [each["error"] for each in lines if "error" in each]


# ---- status -------------------------------------------------------------------------------------


async def test_a_call_that_reports_nothing_has_dealt_with_the_generation(
    kube_client: Client,
) -> None:
    app = Operator("things")
    calls: list[str] = []

    @app.reconciles(Thing, owns=[MAPS])
    async def reconcile(found: Thing, context: Context) -> None:
        calls.append(found.spec.size)
        await context.apply(MAPS.new(found.name, data={"size": found.spec.size}))

    async with running(app, kube_client):
        things = kube_client.of(Thing)
        one = await settled(kube_client, await things.create(Thing.new("one", "default")))
        one = await settled(kube_client, await things.replace(one.evolve(spec=Spec(size="b"))))
        seen = len(calls)
        await kube_client.patch(MAPS, one.key, {"data": {"x": ""}}, PatchType.MERGE)
        await eventually(lambda: len(calls) > seen)
        await settled(kube_client, await things.create(Thing.new("two", "default")))
        assert (await things.get(one.key)).metadata == one.metadata  # nothing was written again


async def test_a_call_that_fails_has_not(kube_client: Client) -> None:
    app = Operator("things")

    @app.reconciles(Thing)
    async def reconcile(found: Thing, context: Context) -> Result:
        if found.spec.size != "a":
            raise ValueError(found.spec.size)
        return Result()

    async with running(app, kube_client):
        things = kube_client.of(Thing)
        one = await settled(kube_client, await things.create(Thing.new("one", "default")))
        wrong = await things.replace(one.evolve(spec=Spec(size="b")))
        with pytest.raises(AssertionError, match="not yet 2: no call of the reconciler has ret"):
            await settled(kube_client, wrong, within=0.3)


# ---- calls --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda c: c.report(5), "report.. of Thing: 5 is not a status; give it a Status, or a map"),
        (lambda c: c.report(Spec()), "Spec.*is not a status; give it a Status, or a mapping"),
        (lambda c: c.event("Normal", "has spaces", "x"), "the reason 'has spaces' is not valid"),
        (lambda c: c.apply({"metadata": {"name": "x"}}), "which has no apiVersion and kind; make"),
        (lambda c: c.apply("x"), "applies 'x', which has no apiVersion and kind; make it with"),
        (lambda c: 5, "reconcile: returned 5; return None, or for example Result"),
        (lambda c: Result(-1), "reconcile: returned Result.requeue_after=-1.*; return 0 or more"),
    ],
)
async def test_a_wrong_call_fails_and_says_what_to_do(
    kube_client: Client, call: Callable[[Context], Any], said: str
) -> None:
    app = Operator("things")

    @app.reconciles(Thing, owns=[MAPS])
    async def reconcile(found: Thing, context: Context) -> Any:
        answer = call(context)
        return await answer if hasattr(answer, "__await__") else answer

    async with running(app, kube_client):
        one = await kube_client.of(Thing).create(Thing.new("one", "default"))
        with pytest.raises(AssertionError, match=f"ConfigError: .*{said}"):
            await settled(kube_client, one, within=0.3)


# ---- functions in the cache ---------------------------------------------------------------------


def raising(given: Any) -> Any:
    raise ValueError("no")


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        (lambda delta: None, "Thing: watches= of ConfigMap returned None; return a list of Obj"),
        (lambda delta: delta.key, "watches= of ConfigMap returned ObjectKey.*return a list of Ob"),
        (lambda delta: ["one"], "watches= of ConfigMap returned .'one'.; return a list of Object"),
        (raising, r"Thing: watches= of ConfigMap raised ValueError\('no'\)"),
    ],
)
async def test_a_function_of_watches_that_returns_no_keys_stops_nothing(
    kube_client: Client, keys: Any, said: str
) -> None:
    app = Operator("things")
    app.reconciles(Thing, watches={MAPS: keys})(good)
    with capture_logs() as lines:
        async with running(app, kube_client):
            await kube_client.create(MAPS, MAPS.new("map", "default"))
            await eventually(lambda: problems_in(lines))
            await settled(
                kube_client, await kube_client.of(Thing).create(Thing.new("one", "default"))
            )
    about = [each for each in lines if each.get("object") == "default/map"]
    assert about
    with pytest.raises(ConfigError, match=said):
        raise ConfigError(about[0]["error"], "", "")


async def test_a_failing_index_finds_nothing_and_a_failing_predicate_hides_nothing(
    kube_client: Client,
) -> None:
    app = Operator("things")
    found_by: list[Any] = []

    @app.reconciles(Thing, owns=[MAPS], indexes={MAPS: {"x": lambda obj: "x"}}, predicate=raising)
    async def reconcile(found: Thing, context: Context) -> None:
        await context.apply(MAPS.new("child", data={"a": "b"}))
        found_by.append(context.children(MAPS, "x", "x"))

    with capture_logs() as lines:
        async with running(app, kube_client):
            await settled(
                kube_client, await kube_client.of(Thing).create(Thing.new("one", "default"))
            )
            await eventually(lambda: found_by)
    assert not any(found_by)
    assert "Thing: indexes= of ConfigMap returned 'x'; return a list of values" in problems_in(
        lines
    )
    assert "Thing: predicate= raised ValueError('no')" in problems_in(lines)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (None, "Thing: predicate= returned None; return True or False"),
        ("yes", "Thing: predicate= returned 'yes'; return True or False"),
        (raising, "Thing: predicate= returned <function raising.*; call the function that makes"),
    ],
)
async def test_a_predicate_that_returns_no_truth_value_hides_nothing(
    kube_client: Client, answer: Any, said: str
) -> None:
    app = Operator("things")
    app.reconciles(Thing, predicate=lambda delta: answer)(good)
    with capture_logs() as lines:
        async with running(app, kube_client):
            await settled(
                kube_client, await kube_client.of(Thing).create(Thing.new("one", "default"))
            )
    about = [each for each in lines if each.get("object") == "default/one"]
    with pytest.raises(ConfigError, match=said):
        raise ConfigError(about[0]["error"], "", "")


async def test_an_index_of_the_own_kind_finds_who_names_a_watched_object(
    kube_client: Client,
) -> None:
    app = Operator("things")
    seen: list[tuple[str, ...]] = []

    @app.reconciles(Thing, indexes={Thing: {"size": lambda obj: [obj["spec"]["size"]]}})
    async def reconcile(found: Thing, context: Context) -> None:
        alike = context.find(Thing, "size", found.spec.size)
        seen.append(tuple(each["metadata"]["name"] for each in alike))

    async with running(app, kube_client):
        for name, size in (("one", "b"), ("two", "c"), ("three", "b")):
            thing = Thing.new(name, "default", spec=Spec(size=size))
            await settled(kube_client, await kube_client.of(Thing).create(thing))
    assert set(seen[-1]) == {"one", "three"}


# ---- declarations -------------------------------------------------------------------------------


async def later(given: Any) -> Any:
    """Do nothing."""


@pytest.mark.parametrize(
    ("declare", "said"),
    [
        (lambda app: app.reconciles(Thing, workers=0)(good), "Thing: workers= is 0; write 1 or"),
        (lambda app: app.reconciles(Thing, timeout=-1)(good), "timeout= is -1; write seconds ab"),
        (lambda app: app.reconciles(Thing, timeout="5")(good), "timeout= is '5'; write seconds"),
        (lambda app: app.reconciles(Thing, backoff=5)(good), "Thing: backoff= is 5; write .FIRST"),
        (lambda app: app.reconciles(Thing, backoff=(5,))(good), "backoff= is .5,.; write .FIRST"),
        (lambda app: app.reconciles(Thing, backoff=(0, 5))(good), "backoff= is .0, 5.; write .FI"),
        (lambda app: app.reconciles(Thing, backoff=(9, 5))(good), "backoff= is .9, 5.; write .FI"),
        (lambda app: app.reconciles(Thing, backoff=(1, "9"))(good), "backoff= is .1, '9'.; write"),
        (
            lambda app: app.reconciles(Thing, watches={MAPS: later})(good),
            "later: is async; write it as `def later",
        ),
        (
            lambda app: app.reconciles(Thing, watches={MAPS: "x"})(good),
            "'x': is not a function; write a function of 1 arguments",
        ),
        (
            lambda app: app.reconciles(Thing, owns=[MAPS], indexes={MAPS: raising})(good),
            "Thing: indexes= of ConfigMap is not a mapping; write {KIND: {NAME: function}}",
        ),
        (
            lambda app: app.validates(Thing, operations=["UPDTE"])(lambda new: []),
            "<lambda>: operations= is UPDTE; write some of CREATE, UPDATE, DELETE",
        ),
        (
            lambda app: app.defaults(Thing, operations=["DELETE"])(raising),
            "raising: operations= is DELETE; write some of CREATE, UPDATE$",
        ),
        (
            lambda app: Operator("things", rules=[{"apiGroups": [""], "resources": ["pods"]}]),
            "operator things: a rule of rules= has no verbs: .*; name at least one",
        ),
        (
            lambda app: FieldError("spec.size", "Forbiden", "no"),
            "FieldError of 'spec.size': the reason is 'Forbiden'; use one of FieldValueInvalid",
        ),
    ],
)
def test_a_declaration_that_cannot_work_is_refused(declare: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        declare(Operator("things"))


def test_a_class_that_is_no_object_is_refused() -> None:
    with pytest.raises(TypeError, match="Spec is not a KubeObject: extend KubeObject"):
        crd("example.com", "v1", plural="specs")(Spec)  # type: ignore[type-var]


# ---- webhooks -----------------------------------------------------------------------------------


def half(new: Thing) -> Any:
    return {"spec": {"size": "b"}}


def textual(new: Thing) -> Any:
    return "too large"


def raw(obj: Obj) -> Any:
    return None


@pytest.mark.parametrize(
    ("declare", "name", "said"),
    [
        (
            lambda app: app.defaults(Thing)(half),
            "half",
            "half: returned .*; return a Thing, such as the given one or its evolve",
        ),
        (
            lambda app: app.validates(Thing)(textual),
            "textual",
            "textual: returned 'too large'; return a list of FieldError, or a ValidationResult",
        ),
        (
            lambda app: app.defaults(Thing.resource)(raw),
            "raw",
            "raw: returned None; return the whole raw object",
        ),
    ],
)
async def test_a_webhook_that_fails_is_named_by_the_function_of_its_author(
    kube_client: Client, declare: Any, name: str, said: str
) -> None:
    app = Operator("things", kinds=[Thing])
    declare(app)
    with capture_logs() as lines:
        async with running(app, kube_client):
            with pytest.raises(Exception, match="the webhook failed"):
                await kube_client.of(Thing).create(Thing.new("one", "default"))
    (line,) = [each for each in lines if "handler" in each]
    assert line["handler"] == f"{__name__}.{name}"
    with pytest.raises(ConfigError, match=said):
        raise line["exc_info"]


# ---- clients ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (
            lambda c: c.of(Thing).create(Thing.new("one")),
            "Thing one: has no namespace; give it one; objects of this kind live in namespaces",
        ),
        (lambda c: c.of(Thing).get(ObjectKey("", "one")), "Thing one: has no namespace"),
        (lambda c: c.of(Thing).apply(Thing.new("one")), "Thing one: has no namespace"),
        (lambda c: c.create(MAPS, MAPS.new("one")), "ConfigMap one: has no namespace"),
        (
            lambda c: c.of(Place).create(Place.new("one", "default")),
            "Place one: has the namespace 'default'; leave it out; the kind is cluster-scoped",
        ),
        (
            lambda c: c.create(Thing, Thing.new("one", "default")),
            "Thing: is not a Resource; use client.of.Thing",
        ),
        (lambda c: c.get("secrets", ObjectKey("a", "b")), "'secrets': is not a Resource; give a R"),
    ],
)
async def test_a_call_that_no_server_could_answer_is_refused_at_once(
    kube_client: Client, call: Any, said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        await call(kube_client)


async def test_a_permanent_error_is_one_line_and_not_one_for_each_retry(
    kube_client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    app = Operator("things")
    calls: list[str] = []

    @app.reconciles(Thing)
    async def reconcile(found: Thing, context: Context) -> None:
        calls.append(found.name)
        raise ValueError(f"attempt {len(calls)}")

    async with running(app, kube_client):
        await kube_client.of(Thing).create(Thing.new("one", "default"))
        await eventually(lambda: len(calls) > 5)
    failures = [each for each in caplog.records if "reconciliation failed" in each.getMessage()]
    assert len(failures) == 1
    assert failures[0].exc_info


async def test_a_number_that_is_no_text_is_named_also_if_it_is_large(kube_client: Client) -> None:
    wrong = MAPS.new("one", "default", data={"key": 12e45})
    with pytest.raises(ServerError, match="data.key: expected string, got .*1.2e.46"):
        await kube_client.patch(MAPS, ObjectKey("default", "one"), wrong, PatchType.APPLY)


async def test_a_time_without_a_zone_is_refused_by_its_place(kube_client: Client) -> None:
    naive = datetime(2026, 1, 2, 3, 4)  # noqa: DTZ001 - the mistake
    said = "ConfigMap.*data.at.*2026-01-02 03:04:00 has no time zone; make it with datetime.now"
    with pytest.raises(InvalidObject, match=said):
        await kube_client.create(MAPS, MAPS.new("one", "default", data={"at": naive}))
    zoned = MAPS.new("one", "default", data={"at": naive.replace(tzinfo=UTC), "on": naive.date()})
    made = await kube_client.create(MAPS, zoned)
    assert made["data"] == {"at": "2026-01-02T03:04:00+00:00", "on": "2026-01-02"}


# ---- failures -----------------------------------------------------------------------------------


async def warnings_about(client: Client, name: str) -> list[str]:
    about = f"involvedObject.name={name},type=Warning,reason=ReconcileFailed"
    events = await client.list(kinds.EVENTS, "default", field_selector=about)
    return [each["message"] for each in events.items]


@pytest.mark.parametrize(
    ("error", "timeout", "said"),
    [
        (ValueError("no such host"), None, "ValueError: no such host"),
        (
            TerminalError("size 5 is not sold"),
            None,
            "size 5 is not sold; it is not tried again until something changes",
        ),
        (None, 0.05, "TimeoutError: took longer than 0.05 s"),
    ],
)
async def test_a_failed_call_is_an_event_once_a_minute(
    kube_client: Client, error: Exception | None, timeout: float | None, said: str
) -> None:
    app, calls = Operator("things"), []

    @app.reconciles(Thing, timeout=timeout)
    async def reconcile(found: Thing, context: Context) -> None:
        calls.append(found.spec.size)
        if error is None:
            await anyio.sleep_forever()
        else:
            raise error

    async with running(app, kube_client):
        one = await kube_client.of(Thing).create(Thing.new("one", "default"))
        await eventually(lambda: warnings_about(kube_client, "one"))
        change = {"metadata": {"labels": {"a": "b"}}}
        await kube_client.patch(Thing.resource, one.key, change, PatchType.MERGE)
        await eventually(lambda: len(calls) > 1)
        await kube_client.of(Thing).create(Thing.new("two", "default"))
        await eventually(lambda: warnings_about(kube_client, "two"))  # events are written in order
        assert await warnings_about(kube_client, "one") == [said]


async def test_a_missing_permission_names_the_two_ways_to_it(kube_client: Client) -> None:
    app = Operator("things")

    @app.reconciles(Thing)
    async def reconcile(found: Thing, context: Context) -> None:
        raise Forbidden("nodes is forbidden: User may not list resource nodes")

    def told() -> list[Any]:
        return [each for each in lines if each["event"] == "lacks a permission"]

    with capture_logs() as lines:
        async with running(app, kube_client):
            await kube_client.of(Thing).create(Thing.new("one", "default"))
            await eventually(told)
    assert "nodes is forbidden" in told()[0]["error"]
    assert "kueuelib manifests FILE" in told()[0]["fix"]
    assert "Operator(rules=)" in told()[0]["fix"]


def test_a_function_that_waits_for_arguments_by_name_is_refused() -> None:
    async def by_name(spec: Any, name: Any, **kwargs: Any) -> None: ...

    said = r"by_name: takes \*\*kwargs, but gets nothing by name; write it as .*\(obj, context\)"
    with pytest.raises(ConfigError, match=said):
        Operator("things").reconciles(Thing)(by_name)
    with pytest.raises(ConfigError, match="name 3 arguments, which it gets by position"):
        Operator("things").validates(Thing)(lambda **kwargs: [])
