"""What an operator offers its functions, on an API server of the test's own."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from structlog.testing import capture_logs

from kueuelib.errors import ConfigError, FieldError, TerminalError
from kueuelib.runtime import (
    AdmissionRequest,
    Client,
    ConditionedStatus,
    Context,
    KubeObject,
    Obj,
    ObjectKey,
    ObjectMeta,
    Operator,
    PatchType,
    Result,
    Struct,
    crd,
    frozen,
    is_true,
    kinds,
)
from kueuelib.runtime.events import EventRecorder
from kueuelib.runtime.operator.hooks import serve_hooks
from kueuelib.testing import eventually, running, settled


@frozen
class Spec(Struct):
    """What is asked for."""

    text: str = ""
    size: int = 0


@frozen
class Status(ConditionedStatus):
    """What was seen."""

    seen: tuple[str, ...] = ()


@crd("example.com", "v1", plural="boxes")
@frozen
class Box(KubeObject):
    """A thing with children."""

    spec: Spec = Spec()
    status: Status = Status()


ONE = ObjectKey("default", "one")


def box(name: str = "one", **spec: Any) -> Box:
    return Box(metadata=ObjectMeta(name=name, namespace="default"), spec=Spec(**spec))


async def seen(client: Client, *expected: str) -> None:
    async def look() -> bool:
        return (await client.of(Box).get(ONE)).status.seen == expected

    await eventually(look)


# ---- metadata only ------------------------------------------------------------------------------


async def test_children_can_be_followed_by_their_metadata(kube_client: Client) -> None:
    app = Operator("boxes")
    children: list[tuple[Obj, ...]] = []

    @app.reconciles(Box, owns=[kinds.CONFIG_MAPS], metadata_only=[kinds.CONFIG_MAPS])
    async def reconcile(found: Box, context: Context) -> None:
        await context.apply(kinds.CONFIG_MAPS.new("child", data={"text": found.spec.text}))
        children.append(context.children(kinds.CONFIG_MAPS))

    child = ObjectKey("default", "child")
    async with running(app, kube_client):
        await kube_client.of(Box).create(box(text="a"))
        made = await eventually(lambda: kube_client.get(kinds.CONFIG_MAPS, child))
        assert made["data"] == {"text": "a"}
        await kube_client.patch(kinds.CONFIG_MAPS, child, {"data": {"text": "b"}}, PatchType.MERGE)

        async def taken_back() -> bool:
            return (await kube_client.get(kinds.CONFIG_MAPS, child))["data"] == {"text": "a"}

        await eventually(taken_back)
    held = [one for each in children for one in each]
    assert held
    assert all(set(one) == {"apiVersion", "kind", "metadata"} for one in held)


async def test_an_equal_apply_of_a_child_known_by_its_metadata_is_skipped(
    kube_client: Client,
) -> None:
    app = Operator("boxes")
    versions: list[str] = []

    @app.reconciles(Box, owns=[kinds.CONFIG_MAPS], metadata_only=[kinds.CONFIG_MAPS])
    async def reconcile(found: Box, context: Context) -> Result:
        answer = await context.apply(kinds.CONFIG_MAPS.new("child", data={"text": "a"}))
        versions.append("data" if "data" in answer else "cached")
        return Result(requeue_after=0.01)

    async with running(app, kube_client):
        await kube_client.of(Box).create(box())
        await eventually(lambda: len(versions) > 4)
    assert versions[0] == "data"
    assert set(versions[-3:]) == {"cached"}


def test_metadata_of_a_kind_that_is_not_followed_is_refused() -> None:
    app = Operator("boxes")
    with pytest.raises(ConfigError, match="metadata_only= names ConfigMap, which is neither owned"):
        app.reconciles(Box, metadata_only=[kinds.CONFIG_MAPS])(lambda *_: asyncio.sleep(0))


# ---- indexes ------------------------------------------------------------------------------------


def color(obj: Obj) -> list[str]:
    return [obj["data"]["color"]]


async def test_children_are_found_by_a_named_index(kube_client: Client) -> None:
    app = Operator("boxes")

    @app.reconciles(Box, owns=[kinds.CONFIG_MAPS], indexes={kinds.CONFIG_MAPS: {"color": color}})
    async def reconcile(found: Box, context: Context) -> None:
        for name, shade in (("a", "red"), ("b", "blue"), ("c", "red")):
            child = kinds.CONFIG_MAPS.new(f"{found.name}-{name}", data={"color": shade})
            await context.apply(child)
        red = context.children(kinds.CONFIG_MAPS, "color", "red")
        context.report(Status(seen=tuple(each["metadata"]["name"] for each in red)))

    async with running(app, kube_client):
        await kube_client.of(Box).create(box("other"))
        await kube_client.of(Box).create(box())
        await seen(kube_client, "one-a", "one-c")


async def test_watched_objects_are_found_by_a_named_index(kube_client: Client) -> None:
    app = Operator("boxes")

    @app.reconciles(
        Box,
        watches={kinds.CONFIG_MAPS: lambda _: [ONE]},
        indexes={kinds.CONFIG_MAPS: {"color": lambda obj: obj.get("data", {}).values()}},
    )
    async def reconcile(found: Box, context: Context) -> None:
        names = (each["metadata"]["name"] for each in context.find(kinds.CONFIG_MAPS, "color", 1))
        blue = context.find(kinds.CONFIG_MAPS, "color", "blue")
        context.report(Status(seen=(*names, *(each["metadata"]["name"] for each in blue))))

    async with running(app, kube_client):
        await kube_client.of(Box).create(box())
        for name, shade in (("x", "blue"), ("y", "red")):
            made = kinds.CONFIG_MAPS.new(name, "default", data={"color": shade})
            await kube_client.create(kinds.CONFIG_MAPS, made)
        await seen(kube_client, "x")


async def test_an_index_that_is_not_declared_is_refused_by_name(kube_client: Client) -> None:
    app = Operator("boxes")
    errors: list[str] = []

    @app.reconciles(Box, owns=[kinds.CONFIG_MAPS], watches={kinds.SECRETS: lambda _: ()})
    async def reconcile(found: Box, context: Context) -> None:
        for look in (
            lambda: context.children(kinds.CONFIG_MAPS, "shape", 1),
            lambda: context.find(kinds.CONFIG_MAPS, "shape", 1),
            lambda: context.children(kinds.SECRETS, "shape", 1),
        ):
            with pytest.raises(ConfigError) as caught:
                look()
            errors.append(str(caught.value))

    async with running(app, kube_client):
        await kube_client.of(Box).create(box())
        await eventually(lambda: len(errors) >= 3)
    assert "ConfigMap has no index 'shape'" in errors[0]
    assert "ConfigMap is owned by Box" in errors[1]
    assert "Secret is not owned by Box" in errors[2]


async def test_a_kind_of_children_can_be_watched_as_well(kube_client: Client) -> None:
    """Objects of others are read from the cache, and never taken for its own."""
    app = Operator("boxes")
    seen: dict[str, Any] = {}

    def tiers(obj: Obj) -> list[str]:
        return [obj["metadata"].get("labels", {}).get("tier", "")]

    @app.reconciles(
        Box,
        owns=[kinds.SECRETS],
        watches={kinds.SECRETS: lambda delta: [ONE] if delta.key.name == "given" else []},
        indexes={kinds.SECRETS: {"tier": tiers}},
    )
    async def reconcile(found: Box, context: Context) -> None:
        given = context.get(kinds.SECRETS, "given")
        if given is None:
            return
        await context.apply(kinds.SECRETS.new("made", labels={"tier": "web"}, data=given["data"]))
        seen["made"] = context.get(kinds.SECRETS, "made")
        for name, objects in (
            ("all", context.children(kinds.SECRETS)),
            ("indexed", context.children(kinds.SECRETS, "tier", "web")),
            ("found", context.find(kinds.SECRETS, "tier", "web")),
        ):
            seen[name] = sorted(each["metadata"]["name"] for each in objects)
        seen["pruned"] = await context.prune(kinds.SECRETS)

    async with running(app, kube_client):
        owner = await kube_client.of(Box).create(box())
        strange = kinds.SECRETS.new("strange", "default", labels={"tier": "web"})
        about = {"apiVersion": "example.com/v1", "kind": "Box", "name": "one"}
        strange["metadata"]["ownerReferences"] = [{**about, "uid": owner.metadata.uid}]
        await kube_client.create(kinds.SECRETS, strange)  # of the same owner, by another operator
        given = kinds.SECRETS.new("given", "default", labels={"tier": "web"}, data={"p": "YQ=="})
        await kube_client.create(kinds.SECRETS, given)
        await eventually(lambda: seen.get("pruned") == 0)
        made = ObjectKey("default", "made")
        assert (await kube_client.get(kinds.SECRETS, made))["data"] == {"p": "YQ=="}
        await eventually(lambda: seen["found"] == ["given", "made", "strange"])
        assert seen["all"] == seen["indexed"] == ["made"]
        assert seen["made"] is not None
        await kube_client.delete(kinds.SECRETS, made)  # what is owned is still looked after
        await eventually(lambda: kube_client.get(kinds.SECRETS, made))


# ---- adoption -----------------------------------------------------------------------------------


def adopting(*, adopt: bool) -> tuple[Operator, list[str]]:
    app, errors = Operator("boxes"), []

    @app.reconciles(Box, owns=[kinds.CONFIG_MAPS])
    async def reconcile(found: Box, context: Context) -> None:
        child = kinds.CONFIG_MAPS.new("child", data={"text": found.spec.text})
        try:
            await context.apply(child, adopt=adopt)
        except ConfigError as error:
            errors.append(str(error))
            raise

    return app, errors


CHILD = ObjectKey("default", "child")


async def test_a_child_that_belongs_to_nobody_is_adopted_if_the_author_says_so(
    kube_client: Client,
) -> None:
    orphan = kinds.CONFIG_MAPS.new("child", "default", data={"other": "kept"})
    await kube_client.create(kinds.CONFIG_MAPS, orphan)
    app, errors = adopting(adopt=True)
    async with running(app, kube_client):
        owner = await kube_client.of(Box).create(box(text="a"))

        async def adopted() -> bool:
            found = await kube_client.get(kinds.CONFIG_MAPS, CHILD)
            references = found["metadata"].get("ownerReferences") or [{}]
            return references[0].get("uid") == owner.metadata.uid

        await eventually(adopted)
    assert (await kube_client.get(kinds.CONFIG_MAPS, CHILD))["data"] == {
        "other": "kept",
        "text": "a",
    }
    assert errors == []


async def test_without_that_it_is_refused_and_the_error_names_the_way(kube_client: Client) -> None:
    orphan = kinds.CONFIG_MAPS.new("child", "default")
    await kube_client.create(kinds.CONFIG_MAPS, orphan)
    app, errors = adopting(adopt=False)
    async with running(app, kube_client):
        await kube_client.of(Box).create(box())
        await eventually(lambda: errors)
    assert "ConfigMap default/child: exists and does not belong to Box default/one" in errors[0]
    assert "adopt=True" in errors[0]
    assert "data" not in await kube_client.get(kinds.CONFIG_MAPS, CHILD)


@pytest.mark.parametrize("adopt", [True, False])
@pytest.mark.parametrize("labels", [{}, {"app.kubernetes.io/managed-by": "boxes"}])
async def test_a_child_of_somebody_else_is_never_taken_over(
    kube_client: Client, labels: dict[str, str], adopt: bool
) -> None:
    reference = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": True}
    taken = kinds.CONFIG_MAPS.new("child", "default", labels=labels)
    taken["metadata"]["ownerReferences"] = [reference]
    await kube_client.create(kinds.CONFIG_MAPS, taken)
    app, errors = adopting(adopt=adopt)
    async with running(app, kube_client):
        await kube_client.of(Box).create(box())
        await eventually(lambda: errors)
    assert "it belongs to Pod p" in errors[0]
    found = await kube_client.get(kinds.CONFIG_MAPS, CHILD)
    assert [each["uid"] for each in found["metadata"]["ownerReferences"]] == ["u"]


def once(owned: Any, seen: list[bool]) -> Operator:
    """An operator that writes a child once, and prunes."""
    app = Operator("boxes")

    @app.reconciles(Box, owns=[owned])
    async def reconcile(found: Box, context: Context) -> None:
        seen.append(context.get(owned, "child") is not None)
        if not seen[-1]:
            await context.apply(owned.new("child"))
        await context.prune(owned)
        context.condition("Ready", True, "Applied")

    return app


async def test_the_child_of_an_earlier_object_is_absent_and_waited_for(kube_client: Client) -> None:
    """No garbage collector runs, as if it were late."""
    seen: list[bool] = []
    async with running(once(kinds.CONFIG_MAPS, seen), kube_client):
        first = await settled(kube_client, await kube_client.of(Box).create(box()))
        await kube_client.of(Box).delete(ONE)
        await eventually(lambda: gone(kube_client))
        with capture_logs() as lines:
            second = await kube_client.of(Box).create(box())
            before = len(seen)
            await eventually(lambda: len(seen) > before + 9)
        assert not any(seen[before:])
        assert not is_true(await kube_client.of(Box).get(ONE), "Ready")
        (told,) = [line for line in lines if line["log_level"] in ("warning", "error")]
        text = "ConfigMap default/child belongs to an earlier Box with the same name"
        assert text in told["changed"][0]
        left = await kube_client.get(kinds.CONFIG_MAPS, CHILD)
        assert [each["uid"] for each in left["metadata"]["ownerReferences"]] == [first.metadata.uid]
        await kube_client.delete(kinds.CONFIG_MAPS, CHILD)  # as the garbage collector does
        assert is_true(await settled(kube_client, second), "Ready")
    made = await kube_client.get(kinds.CONFIG_MAPS, CHILD)
    assert [each["uid"] for each in made["metadata"]["ownerReferences"]] == [second.metadata.uid]


async def test_what_a_call_finds_by_name_is_not_pruned(kube_client: Client) -> None:
    """A password that is written once is not renewed."""
    seen: list[bool] = []
    async with running(once(kinds.SECRETS, seen), kube_client):
        await settled(kube_client, await kube_client.of(Box).create(box()))
        first = await kube_client.get(kinds.SECRETS, CHILD)
        other = kinds.SECRETS.new("other", "default")
        other["metadata"] |= {key: first["metadata"][key] for key in ("labels", "ownerReferences")}
        await kube_client.create(kinds.SECRETS, other)

        async def pruned() -> bool:
            left = (await kube_client.list(kinds.SECRETS)).items
            return [each["metadata"]["name"] for each in left] == ["child"]

        await eventually(pruned)
    assert (await kube_client.get(kinds.SECRETS, CHILD))["metadata"]["uid"] == first["metadata"][
        "uid"
    ]
    assert seen[0] is False
    assert all(seen[1:])


# ---- typed webhooks -----------------------------------------------------------------------------


async def test_defaults_of_a_class_take_and_return_typed_objects(kube_client: Client) -> None:
    app = Operator("boxes", kinds=[Box])
    given: list[Box] = []

    @app.defaults(Box)
    def text_from_name(new: Box) -> Box:
        given.append(new)
        text = new.spec.text or new.name
        return new.evolve(spec=new.spec.evolve(text=text))

    @app.validates(Box)
    def small(new: Box | None, old: Box | None, request: Any) -> list[Any]:
        return []

    async with running(app, kube_client):
        raw = Box.resource.new("one", "default", spec={"size": 0})
        raw["metadata"]["annotations"] = {"a": "b"}
        made = await kube_client.create(Box.resource, raw)
        assert made["spec"] == {"text": "one", "size": 0}
        assert made["metadata"]["annotations"] == {"a": "b"}
        assert (await kube_client.of(Box).create(box("two", text="x"))).spec.text == "x"
    assert all(isinstance(each, Box) for each in given)


def test_a_check_of_the_new_object_alone_has_one_argument() -> None:
    app = Operator("boxes")

    @app.validates(Box)
    def short(new: Box) -> list[FieldError]:
        too_long = len(new.spec.text) > 3
        return [FieldError("spec.text", "FieldValueInvalid", "too long")] if too_long else []

    assert short(box("one", text="x")) == []
    answers = [
        app.hooks[0].function(box("one", text=text), None, AdmissionRequest("u", "CREATE"))
        for text in ("abc", "abcd")
    ]
    assert [len(each) for each in answers] == [0, 1]


def test_a_check_of_deletions_cannot_have_one_argument() -> None:
    app = Operator("boxes")
    with pytest.raises(ConfigError, match="<lambda> has one argument, but a deletion has no new"):
        app.validates(Box, operations=["UPDATE", "DELETE"])(lambda new: [])


async def test_settled_waits_for_the_generation_of_an_object(kube_client: Client) -> None:
    app = Operator("boxes")

    @app.reconciles(Box)
    async def noted(found: Box, context: Context) -> None:
        context.condition("Ready", True, "Noted", found.spec.text)

    async with running(app, kube_client):
        boxes = kube_client.of(Box)
        one = await settled(kube_client, await boxes.create(box("one", text="a")))
        one = await settled(kube_client, await boxes.replace(one.evolve(spec=Spec(text="b"))))
        assert [each.message for each in one.status.conditions] == ["b"]
    with pytest.raises(AssertionError, match=r"not within 0\.1 s"):
        await settled(kube_client, await boxes.create(box("two")), within=0.1)


def test_a_defaulting_function_that_gets_what_is_no_such_object_denies_the_request() -> None:
    app = Operator("boxes")
    app.defaults(Box)(lambda new: new)
    served: dict[str, Any] = {}

    class Server:
        def mutate(self, path: str, mutator: Any) -> None:
            served[path] = mutator

    serve_hooks(app, Server())  # type: ignore[arg-type]
    wrong = Box.resource.new("one", "default", spec={"size": "many"})
    with pytest.raises(ValueError, match=r"spec\.size"):
        served["/default-boxes.example.com"](wrong)
    unknown = Box.resource.new("one", "default", spec={"size": 1, "color": "red"}, status={})
    assert served["/default-boxes.example.com"](unknown) == unknown


async def test_defaults_of_a_resource_take_raw_objects(kube_client: Client) -> None:
    app = Operator("maps")

    @app.defaults(kinds.CONFIG_MAPS, object_selector={"matchLabels": {"filled": "yes"}})
    def raw(obj: Obj) -> Obj:
        return {**obj, "data": {"a": "b"}}

    async with running(app, kube_client):
        made = kinds.CONFIG_MAPS.new("one", "default", labels={"filled": "yes"})
        assert (await kube_client.create(kinds.CONFIG_MAPS, made))["data"] == {"a": "b"}


async def _good(found: Any, context: Context) -> None:
    pass


def _plain(found: Any, context: Context) -> None:
    pass


async def _one(found: Any) -> None:
    pass


@pytest.mark.parametrize(
    ("declare", "message"),
    [
        (lambda app: app.reconciles(Box)(_plain), "_plain: is not async; write it as `async def"),
        (lambda app: app.reconciles(Box)(_one), "_one: cannot be called: too many .* 2 arguments"),
        (
            lambda app: app.reconciles(Box)(_good).teardown("a.b/c")(_plain),
            "_plain: is not async",
        ),
        (lambda app: app.reconciles(Box)(_good).teardown(_good), "_good: .*write @....teardown"),
        (lambda app: app.reconciles(Box)(_good).teardown(adopt="a"), r"write adopt=\['a'\]"),
        (lambda app: app.validates(Box)(_one), "_one: is async; write it as `def _one"),
        (lambda app: app.defaults(Box)(_one), "_one: is async"),
        (lambda app: app.defaults(Box)(lambda: 1), "it gets 1 arguments"),
        (lambda app: app.reconciles(_good), r"_good is decorated without a kind; write @app"),
        (lambda app: app.reconciles("boxes"), "'boxes': is not a kind; name a class with @crd"),
        (lambda app: app.reconciles(Box, owns="configmaps")(_good), "owns= is a single value"),
        (
            lambda app: app.reconciles(Box, owns=["configmaps"])(_good),
            "'configmaps': is not a kind",
        ),
        (lambda app: app.reconciles(Box, writes=kinds.PODS)(_good), "writes= is a single value"),
        (lambda app: app.reconciles(Box, watches=[kinds.PODS])(_good), "watches= is not a mapping"),
    ],
)
def test_what_could_not_be_called_later_is_refused(declare: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        declare(Operator("boxes"))


async def test_a_wrong_return_value_fails_one_object_and_not_the_operator(
    kube_client: Client,
) -> None:
    app = Operator("boxes")
    calls: list[str] = []

    @app.reconciles(Box)
    async def wrong(found: Box, context: Context) -> Any:
        calls.append(found.metadata.name)
        context.condition("Ready", True, "Seen")
        return 60 if found.metadata.name == "one" else None

    async with running(app, kube_client):
        boxes = kube_client.of(Box)
        await boxes.create(box("one"))
        await eventually(lambda: calls.count("one") > 1)
        await settled(kube_client, await boxes.create(box("two")))
    for given in ("60", True, timedelta(minutes=1)):
        with pytest.raises(TypeError, match="requeue_after is .*; give seconds, for example"):
            Result(requeue_after=given)  # type: ignore[arg-type]


async def test_a_check_that_returns_no_errors_of_fields_denies_and_says_so(
    kube_client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    app = Operator("boxes", kinds=[Box])
    wrong: Any = lambda new: "no"  # noqa: E731
    app.validates(Box)(wrong)
    async with running(app, kube_client):
        with pytest.raises(Exception, match="the webhook failed"):
            await kube_client.of(Box).create(box())
    assert "returned 'no'; return a list of FieldError, or a ValidationResult" in caplog.text


async def test_two_operators_do_not_fight_about_one_child(kube_client: Client) -> None:
    def apart(name: str, errors: list[str], *, adopt: bool = False) -> Operator:
        app = Operator(name)

        @app.reconciles(Box, owns=[kinds.CONFIG_MAPS])
        async def keep(found: Box, context: Context) -> None:
            child = kinds.CONFIG_MAPS.new("one", data={"by": name})
            try:
                await context.apply(child, adopt=adopt)
            except ConfigError as error:
                errors.append(str(error))
            context.condition("Ready", True, "Applied")

        return app

    errors: list[str] = []
    async with running(apart("first", errors), kube_client):
        one = await settled(kube_client, await kube_client.of(Box).create(box()))
        async with running(apart("second", errors), kube_client):
            await eventually(lambda: errors)
    assert "default/one: is managed by 'first' for the same Box; stop 'first'" in errors[0]
    errors.clear()
    async with running(apart("second", errors, adopt=True), kube_client):

        async def taken() -> bool:
            found = await kube_client.get(kinds.CONFIG_MAPS, one.key)
            return bool(found["data"]["by"] == "second")

        await eventually(taken)
    assert errors == []


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("Ready", "Ready", "Done"), "the status 'Ready' is not valid; give True, False, or None"),
        (("Ready", True, "all done"), "the reason 'all done' is not valid; give a word"),
        (("Ready", True, ""), "the reason '' is not valid"),
        (("Is ready", True, "Done"), "the type 'Is ready' is not valid"),
        (("Ready", True, "Done\n"), "the reason 'Done.n' is not valid"),
    ],
)
def test_a_condition_that_a_server_would_refuse_is_refused_at_once(
    given: tuple[Any, Any, Any], said: str
) -> None:
    fields = {"declared": declared_boxes(), "client": None, "status": Status}
    around = type("Around", (), fields)()
    context = Context(around, {})  # type: ignore[arg-type]
    context.condition("example.com/Ready", None, "Done")
    with pytest.raises(ConfigError, match=said):
        context.condition(*given)


def test_an_event_of_no_such_type_is_refused_in_one_line(kube_client: Client) -> None:
    recorder = EventRecorder(kube_client, "boxes")
    around = type("Around", (), {"recorder": recorder, "client": None})()
    context = Context(around, kinds.CONFIG_MAPS.new("one"))  # type: ignore[arg-type]
    wrong: Any = "Warn"
    with pytest.raises(ConfigError) as raised:
        context.event(wrong, "Late", "it is late")
    assert str(raised.value) == (
        "event type 'Warn': there is no such type; write 'Normal' or 'Warning'"
    )


def declared_boxes() -> Any:
    @Operator("boxes").reconciles(Box)
    async def reconcile(found: Box, context: Context) -> None:
        """Do nothing."""

    return reconcile


async def test_a_condition_needs_a_status() -> None:
    @crd("example.com", "v1", plural="bare")
    @frozen
    class Bare(KubeObject):
        """A thing without status."""

    app = Operator("bare")
    seen: list[str] = []

    @app.reconciles(Bare)
    async def tell(found: Bare, context: Context) -> None:
        try:
            context.condition("Ready", True, "Seen")
        except ConfigError as error:
            seen.append(str(error))

    around = type("Around", (), {"declared": tell, "client": None, "status": None})()
    await tell(Bare(), Context(around, {}))  # type: ignore[arg-type]
    assert seen == [
        "Bare: has no field status; add `status: Status`, a class that extends ConditionedStatus"
    ]


async def test_a_change_while_the_status_is_written_is_seen_after_a_settled_result(
    kube_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = Operator("boxes")
    texts: list[str] = []

    @app.reconciles(Box)
    async def reconcile(found: Box, context: Context) -> Result:
        texts.append(found.spec.text)
        context.condition("Ready", True, "Seen", found.spec.text)
        return Result(settled=True)

    patch = Client.patch

    async def slow(self: Client, *args: Any, **options: Any) -> Any:
        answer = await patch(self, *args, **options)
        if options.get("subresource") == "status" and texts == ["a"]:
            await patch(kube_client, Box.resource, ONE, {"spec": {"text": "b"}}, PatchType.MERGE)
            await asyncio.sleep(0.1)  # the informer hears of it, while this answer is on its way
        return answer

    monkeypatch.setattr(Client, "patch", slow)
    async with running(app, kube_client):
        await kube_client.of(Box).create(box(text="a"))
        await eventually(lambda: texts[-1:] == ["b"])


# ---- teardown -----------------------------------------------------------------------------------


def ending(name: str, calls: list[str], *arguments: Any, **options: Any) -> Operator:
    """An operator that notes what is reconciled and torn down."""
    app = Operator(name)

    @app.reconciles(Box)
    async def reconcile(found: Box, context: Context) -> None:
        calls.append(f"{name} {found.name}")

    @reconcile.teardown(*arguments, **options)
    async def end(found: Box, context: Context) -> None:
        calls.append(f"{name} ends {found.name}")

    return app


async def gone(client: Client, key: ObjectKey = ONE) -> bool:
    return key not in {one.key for one in await client.of(Box).list()}


async def test_a_finalizer_without_a_name_carries_that_of_the_operator(kube_client: Client) -> None:
    calls: list[str] = []
    async with running(ending("boxes", calls), kube_client):
        boxes = kube_client.of(Box)
        one = await settled(kube_client, await boxes.create(box()))
        assert one.metadata.finalizers == ("kueuelib.dev/boxes",)
        await boxes.delete(ONE)
        await eventually(lambda: gone(kube_client))
    assert calls[-1] == "boxes ends one"


async def test_a_finalizer_that_came_with_the_object_goes_with_the_teardown(
    kube_client: Client,
) -> None:
    calls: list[str] = []
    async with running(ending("boxes", calls, "a.b/c"), kube_client):
        boxes = kube_client.of(Box)
        meta = ObjectMeta(name="one", namespace="default", finalizers=("a.b/c", "x.y/z"))
        await settled(kube_client, await boxes.create(Box(metadata=meta)))
        await boxes.delete(ONE)

        async def rest() -> bool:
            return (await boxes.get(ONE)).metadata.finalizers == ("x.y/z",)

        await eventually(rest)
    assert calls.count("boxes ends one") == 1


async def test_an_operator_that_has_ended_waits_for_the_others_and_is_not_called_again(
    kube_client: Client,
) -> None:
    """Also if one of them is away, and if one sees the object only after it was deleted."""
    calls: list[str] = []
    async with running(ending("away", calls, "a.b/c"), kube_client):
        await settled(kube_client, await kube_client.of(Box).create(box()))
    async with running(ending("quick", calls, "a.b/c"), kube_client):
        await kube_client.of(Box).delete(ONE)
        with capture_logs() as lines:
            await eventually(lambda: any("operators" in line for line in lines))
        label = {"metadata": {"labels": {"a": "b"}}}
        await kube_client.patch(Box.resource, ONE, label, PatchType.MERGE)
        async with running(ending("late", calls, "a.b/c"), kube_client):
            await eventually(lambda: "late ends one" in calls)
        assert not await gone(kube_client)
    assert calls.count("quick ends one") == 1
    assert [line["operators"] for line in lines if "operators" in line] == [["away"]]
    async with running(ending("away", calls, "a.b/c"), kube_client):
        await eventually(lambda: gone(kube_client))
    assert calls[-1] == "away ends one"


async def test_an_operator_with_a_new_name_takes_over_what_it_held_under_the_old_one(
    kube_client: Client,
) -> None:
    calls: list[str] = []
    async with running(ending("old", calls, "a.b/c"), kube_client):
        await settled(kube_client, await kube_client.of(Box).create(box()))
    async with running(ending("new", calls, "a.b/c", adopt=["old"]), kube_client):
        await kube_client.of(Box).delete(ONE)
        await eventually(lambda: gone(kube_client))
    assert calls[-1] == "new ends one"


async def test_a_teardown_that_cannot_succeed_keeps_the_object_until_something_changes(
    kube_client: Client,
) -> None:
    app, calls = Operator("boxes"), []

    @app.reconciles(Box)
    async def reconcile(found: Box, context: Context) -> None:
        """Nothing to do."""

    @reconcile.teardown()
    async def end(found: Box, context: Context) -> None:
        calls.append(found.spec.text)
        if not found.spec.text:
            raise TerminalError("no text")

    async with running(app, kube_client):
        await settled(kube_client, await kube_client.of(Box).create(box()))
        await kube_client.of(Box).delete(ONE)

        await eventually(lambda: calls)
        await asyncio.sleep(0.3)  # an error that is retried comes after 5 ms, 10 ms, ...
        assert not await gone(kube_client)
        assert calls == [""]
        await kube_client.patch(Box.resource, ONE, {"spec": {"text": "a"}}, PatchType.MERGE)
        await eventually(lambda: gone(kube_client))
    assert calls == ["", "a"]
