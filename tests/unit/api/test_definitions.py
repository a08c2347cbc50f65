"""CustomResourceDefinitions out of a user's classes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar, Literal

import attrs
import pytest
from attrs.exceptions import FrozenInstanceError

from kueuelib.api.codec import decode, encode
from kueuelib.api.definitions import Column, Rule, Version, converted, crd, crd_of, definition_of
from kueuelib.api.meta import ConditionedStatus, KubeObject, ObjectMeta
from kueuelib.api.quantity import Quantity
from kueuelib.api.schema import object_schema
from kueuelib.api.struct import Struct, Time, frozen, wire
from kueuelib.errors import ConfigError, InvalidObject
from kueuelib.runtime.importing import module_at


@attrs.frozen
class Disk(Struct):
    """A disk.

    Attributes:
        size: how much fits.
        kind: how fast it is.
    """

    size: Quantity
    kind: Literal["fast", "slow"] = "slow"


@attrs.frozen
class Limits(Struct):
    cpu: int = attrs.field(default=2, metadata=wire(minimum=1, column="CPUs"))
    share: float = 0.5


@attrs.frozen
class WidgetSpec(Struct):
    owner: str
    disks: tuple[Disk, ...] = ()
    limits: Limits = Limits()
    paused: bool = False
    extra_config: Mapping[str, Any] = attrs.field(factory=dict)


@attrs.frozen
class WidgetStatus(ConditionedStatus):
    since: Time | None = attrs.field(default=None, metadata=wire(column="Since"))


@attrs.frozen
class GaugeSpec(Struct):
    size: int = 1
    limits: Limits = Limits(share=0.25)
    disk: Disk = Disk(size=Quantity.of(1))


@attrs.frozen
class Gauge(KubeObject):
    spec: GaugeSpec = GaugeSpec(size=3)


@attrs.frozen
class OldSpec(Struct):
    user: str = ""


@attrs.frozen
class OldWidget(KubeObject):
    spec: OldSpec = OldSpec()


def to_stored(old: OldWidget) -> Widget:
    return Widget(spec=WidgetSpec(owner=old.spec.user))


def from_stored(new: Widget) -> OldWidget:
    return OldWidget(spec=OldSpec(user=new.spec.owner))


@crd(
    "example.com",
    "v1",
    plural="widgets",
    short_names=["wd"],
    columns=[Column("Owner", ".spec.owner")],
    rules=[Rule("spec", "self.owner != 'root'", "choose another owner", version="v1")],
    versions=[Version("v1alpha1", OldWidget, to_stored, from_stored)],
)
@attrs.frozen(kw_only=True)
class Widget(KubeObject):
    """A thing with disks."""

    spec: WidgetSpec
    status: WidgetStatus = WidgetStatus()


def schema() -> dict[str, Any]:
    return crd_of(Widget, {"url": "https://x/convert"})["spec"]["versions"][0]["schema"][
        "openAPIV3Schema"
    ]


def test_a_default_has_the_nested_ones_and_what_it_says_itself() -> None:
    spec = object_schema(Gauge, derived=True)["properties"]["spec"]
    disk = {"size": "1", "kind": "slow"}
    assert spec["default"] == {"size": 3, "limits": {"cpu": 2, "share": 0.25}, "disk": disk}


def test_attributes_without_default_are_required_and_others_have_their_default() -> None:
    spec = schema()["properties"]["spec"]
    assert schema()["required"] == ["spec"]
    assert spec["required"] == ["owner"]
    assert spec["properties"]["limits"]["default"] == {"cpu": 2, "share": 0.5}
    assert spec["properties"]["limits"]["properties"]["cpu"] == {
        "type": "integer",
        "format": "int32",
        "minimum": 1,
        "default": 2,
    }
    assert spec["properties"]["limits"]["properties"]["share"] == {"type": "number", "default": 0.5}
    assert "default" not in spec["properties"]["paused"]
    disk = spec["properties"]["disks"]["items"]
    assert disk["required"] == ["size"]
    assert disk["properties"]["kind"] == {
        "type": "string",
        "enum": ["fast", "slow"],
        "default": "slow",
        "description": "How fast it is.",
    }
    assert spec["properties"]["extraConfig"]["x-kubernetes-preserve-unknown-fields"] is True


def test_rules_columns_names_and_the_subresource_are_in_the_definition() -> None:
    found = crd_of(Widget, {"url": "https://x/convert"})["spec"]
    assert found["names"]["shortNames"] == ["wd"]
    new, old = found["versions"]
    assert (new["name"], new["storage"], old["name"], old["storage"]) == (
        "v1",
        True,
        "v1alpha1",
        False,
    )
    assert new["additionalPrinterColumns"] == [
        {"name": "Owner", "type": "string", "jsonPath": ".spec.owner"},
        {"name": "CPUs", "type": "integer", "jsonPath": ".spec.limits.cpu"},
        {"name": "Since", "type": "date", "jsonPath": ".status.since"},
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    ]
    conditions = schema()["properties"]["status"]["properties"]["conditions"]
    assert conditions["x-kubernetes-list-map-keys"] == ["type"]
    assert new["subresources"] == {"status": {}}
    assert "subresources" not in old
    (rule,) = schema()["properties"]["spec"]["x-kubernetes-validations"]
    assert rule["rule"] == "self.owner != 'root'"
    webhook = found["conversion"]["webhook"]
    assert webhook["clientConfig"] == {"url": "https://x/convert"}


def test_versions_are_converted_in_both_directions_with_their_metadata() -> None:
    meta = {"name": "a", "namespace": "n", "uid": "u", "managedFields": [{"manager": "m"}]}
    old = {
        "apiVersion": "example.com/v1alpha1",
        "kind": "Widget",
        "metadata": meta,
        "spec": {"user": "ann"},
    }
    new = converted(definition_of(Widget), old, "v1")
    assert new["apiVersion"] == "example.com/v1"
    assert new["spec"] == {"owner": "ann"}
    assert new["metadata"] == meta
    assert converted(definition_of(Widget), new, "v1alpha1") == old
    with pytest.raises(InvalidObject, match="'v2' is not one of: v1, v1alpha1"):
        converted(definition_of(Widget), old, "v2")


def test_a_typed_object_survives_the_wire() -> None:
    widget = Widget(
        metadata=ObjectMeta(name="a", namespace="n"),
        spec=WidgetSpec("ann", disks=(Disk(Quantity.parse("1Gi"), "fast"),)),
    )
    assert decode(Widget, encode(widget)) == widget
    raw = encode(widget)
    raw["spec"]["disks"][0]["kind"] = "huge"
    with pytest.raises(InvalidObject, match=r'spec.disks\[0\].kind: .*"fast", "slow"'):
        decode(Widget, raw)


def test_mistakes_are_named_when_the_class_is_made() -> None:
    @attrs.frozen
    class Thing(KubeObject):
        spec: OldSpec = OldSpec()

    with pytest.raises(ConfigError, match="version '1' is not valid; write for example v1"):
        crd("example.com", "1", plural="things")(Thing)
    with pytest.raises(ConfigError, match="group 'example' is not a domain"):
        crd("example", "v1", plural="things")(Thing)
    with pytest.raises(ConfigError, match="plural 'Things' is not a valid name"):
        crd("example.com", "v1", plural="Things")(Thing)
    with pytest.raises(ConfigError, match=r"a rule is for spec.nothing, which is not in the"):
        crd("example.com", "v1", plural="things", rules=[Rule("spec.nothing", "true", "m")])(Thing)
    with pytest.raises(ConfigError, match="Widget: has further versions, which need a conversion"):
        crd_of(Widget)

    class Plain(KubeObject):
        pass

    with pytest.raises(TypeError, match="put @frozen of kueuelib.runtime below @crd"):
        crd("example.com", "v1", plural="plains")(Plain)
    with pytest.raises(ConfigError, match="OldSpecless: has no definition; decorate the class"):
        crd_of(type("OldSpecless", (KubeObject,), {}))

    @attrs.frozen
    class Wrong(KubeObject):
        spec: list[str] = attrs.field(factory=list)

    with pytest.raises(ConfigError, match=r"list\[str\] has no schema; write tuple\[str, ...\]"):
        crd_of(crd("example.com", "v1", plural="wrongs")(Wrong))


def schema_error(**fields: Any) -> str:
    """What is said of a kind with these fields: a type, or a type and a default."""
    body: dict[str, Any] = {"__annotations__": {}}
    for name, (annotation, *default) in fields.items():
        if annotation is not None:
            body["__annotations__"][name] = annotation
        if default:
            (body[name],) = default
    made = attrs.frozen(kw_only=True)(type("Gear", (KubeObject,), body))
    decorate = crd("example.com", "v1", plural="gears")
    with pytest.raises(ConfigError) as caught:
        crd_of(decorate(made))
    return str(caught.value)


def line_of(text: str) -> int:
    lines = Path(__file__).read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if line.strip().startswith(text))


class Bare(Struct):
    """Its decorator was forgotten."""

    who: str = "you"


class OnlyAnother(Struct):
    """Adds no field."""

    limit: ClassVar[int] = 1


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"a": (dict,)}, "Gear.a: the type dict has no schema; use str, int"),
        (
            {"a": (dict[str, list[int]],)},
            "Gear.a: the type dict[str, list[int]] has no schema; write Mapping[str, list[int]]",
        ),
        (
            {"a": (Bare, Bare())},
            f"{__file__}, line {line_of('class Bare')}: Bare: its fields would be lost; put @froz",
        ),
        (
            {"a": (str, None)},
            "Gear.a: the default None is not of the type str; write a: str | None = None",
        ),
        (
            {"a": (Time, None)},
            "Gear.a: the default None is not of the type Time; write a: Time | None = None",
        ),
        (
            {"a": (tuple[str, ...], None)},
            "Gear.a: the default None is not of the type tuple[str, ...]; write a: tuple[str, ...]",
        ),
        (
            {"a": (int, 10**12)},
            "Gear.a: the default 1000000000000 does not fit into int32; write field(default=100000",
        ),
        ({"a": (int, -(2**31) - 1)}, "Gear.a: the default -2147483649 does not fit into int32"),
        ({"a": (int | str,)}, "Gear.a: the type int | str has no schema; use str, int"),
        ({"a": (int, "x")}, "Gear.a: the default 'x' is not of the type integer; correct the"),
        ({"a": (int, True)}, "Gear.a: the default True is not of the type integer; correct the"),
        ({"a": (str, 1)}, "Gear.a: the default 1 is not of the type string; correct the default"),
        ({"a": (tuple[str, ...], "x")}, "Gear.a: the default 'x' is not of the type array"),
        (
            {"a": (Literal["on"], "of")},
            "Gear.a: the default 'of' is none of its values; use one of",
        ),
        (
            {"a": (int, 1), "b": (None, 1)},
            "Gear.b: has no annotation, so it is not a field; write b",
        ),
        (
            {"a": ("Missing",)},
            "Gear: the type of a field is unknown: name 'Missing' is not defined",
        ),
    ],
)
def test_a_field_that_cannot_be_is_named_with_its_fix(fields: dict[str, Any], said: str) -> None:
    assert schema_error(**fields).startswith(said)


def test_a_kind_without_plural_or_version_is_refused_by_its_argument() -> None:
    with pytest.raises(TypeError, match="crd.* missing .* 'plural'"):
        crd("example.com", "v1")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="crd.* missing .* 'version'"):
        crd("example.com", plural="gears")  # type: ignore[call-arg]


def test_what_is_next_to_a_mistake_is_accepted() -> None:
    @crd("example.com", "v1", plural="gears")
    @frozen
    class Gear(KubeObject):
        other: OnlyAnother = OnlyAnother()
        who: str | None = None
        least: int = -(2**31)
        most: int = 2**31 - 1
        large: int = attrs.field(default=10**12, metadata=wire(format="int64"))
        status: ConditionedStatus = ConditionedStatus()

    (version,) = crd_of(Gear)["spec"]["versions"]
    fields = version["schema"]["openAPIV3Schema"]["properties"]
    assert "default" not in fields["who"]
    assert fields["most"]["default"] == 2**31 - 1
    assert fields["large"] == {"type": "integer", "format": "int64", "default": 10**12}
    assert fields["status"]["properties"]["observedGeneration"]["format"] == "int64"


def test_a_mistake_in_a_module_is_named_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "gears.py"
    path.write_text(
        "from kueuelib.runtime import KubeObject, crd, frozen\n"
        "@crd('example.com', 'v1', plural='gears')\n"
        "@frozen\n"
        "class Gear(KubeObject):\n"
        "    who: list[str] = ()\n"
    )
    with pytest.raises(ConfigError, match=rf"{path}, line 5: Gear.who: the type list"):
        module_at(str(path))


def test_a_keyword_that_no_schema_has_is_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"wire\(minium=...\): is not a keyword .*; write minimum"
    ):
        wire(minium=1)


# ---- the order of fields --------------------------------------------------------------------


def fields_of(base: type, **defaults: Any) -> type:
    body = {name: value for name, value in defaults.items() if value is not attrs.NOTHING}
    return type("Gear", (base,), {**body, "__annotations__": dict.fromkeys(defaults, int)})


@pytest.mark.parametrize(
    ("made", "problem", "fix"),
    [
        (
            fields_of(KubeObject, spec=attrs.NOTHING),
            "field spec has no default, but follows metadata,",
            "write @frozen(kw_only=True), or give spec a default",
        ),
        (
            fields_of(Struct, size=1, teeth=attrs.field(), more=2),
            "field teeth has no default, but follows size,",
            "move teeth before size, write @frozen(kw_only=True), or give teeth a default",
        ),
        (
            fields_of(KubeObject, size=attrs.field(default=1), teeth=attrs.field()),
            "field teeth has no default, but follows metadata,",
            "write @frozen(kw_only=True), or give teeth a default",
        ),
    ],
)
def test_a_field_without_a_default_after_one_with_a_default_is_named(
    made: type, problem: str, fix: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        frozen(made)
    assert str(caught.value) == f"class Gear: {problem} which has one; {fix}"
    assert attrs.has(frozen(kw_only=True)(made))


def test_other_mistakes_of_a_class_keep_their_error() -> None:
    with pytest.raises(ValueError, match="`order` can only be True if `eq` is True"):
        frozen(order=True, eq=False)(fields_of(Struct, size=1))


def test_a_dataclass_is_refused_with_the_decorator_to_use() -> None:
    made = dataclasses.dataclass(kw_only=True)(fields_of(KubeObject, spec=attrs.NOTHING))
    with pytest.raises(TypeError, match="Gear is a dataclass: put @frozen of kueuelib.runtime bel"):
        crd("example.com", "v1", plural="gears")(made)


# ---- names of fields ----------------------------------------------------------------------------

ELSE = "; did you mean owner?"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"columns": [Column("Who", ".spec.ownr")]},
            f"column 'Who': .spec.ownr; .spec.ownr {ELSE}",
        ),
        (
            {"columns": [Column("Who", "spec.owner")]},
            "does not begin with a dot: write .spec.owner",
        ),
        ({"columns": [Column("Disk", ".spec.disks[0].sise")]}, "[0].sise ; did you mean size?"),
        ({"columns": [Column("X", ".spec['ownr']")]}, f".spec.ownr {ELSE}"),
        ({"columns": [Column("X", ".state.since")]}, ".state ; did you mean status?"),
        ({"selectable": [".spec.ownr"]}, f"selectable: .spec.ownr; .spec.ownr {ELSE}"),
        ({"rules": [Rule("spec", "self.ownr != ''", "m")]}, f"for spec in v1; self.ownr {ELSE}"),
        ({"rules": [Rule("", "self.spec.ownr == 'x'", "m")]}, f"self.spec.ownr {ELSE}"),
        ({"rules": [Rule("spec", "oldSelf.paused || has(self.ownr)", "m")]}, f"self.ownr {ELSE}"),
        (
            {"rules": [Rule("spec.disks[]", "self.zz", "m")]},
            "self.zz ; the fields are kind, size",
        ),
    ],
)
def test_a_field_that_the_class_does_not_have_is_named_with_the_nearest(
    options: Any, said: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        crd("example.com", "v1", plural="widgets", **options)(copy_of_widget())
    assert said.replace(" ;", " is not a field;") in str(caught.value)


@pytest.mark.parametrize(
    "options",
    [
        {"columns": [Column("A", ".status.conditions[?(@.type=='Ready')].status")]},
        {"columns": [Column("A", ".metadata.creationTimestamp", "date")]},
        {"columns": [Column("A", ".spec.extraConfig.anything.below")]},
        {"columns": [Column("A", ".spec.disks[*].size")]},
        {"columns": [Column("A", "{.spec.owner}")]},
        {"rules": [Rule("spec", "self.owner.startsWith('self.ownr')", "m")]},
        {"rules": [Rule("spec", "self.disks.all(each, each.zz == 1)", "m")]},
        {"rules": [Rule("spec", 'self.owner != "it\'s self.x" && self.limits.cpu > 1', "m")]},
        {"rules": [Rule("spec", "self.owner.size() > 1 && myself.zz", "m")]},
        {"rules": [Rule("spec", "self.__namespace__ == 'x' && self.extraConfig.zz", "m")]},
        {"rules": [Rule("", "self.metadata.name == self.spec.owner", "m")]},
    ],
)
def test_what_may_be_a_field_is_left_to_the_api_server(options: Any) -> None:
    assert crd("example.com", "v1", plural="widgets", **options)(copy_of_widget()).definition


def copy_of_widget() -> type[KubeObject]:
    @attrs.frozen(kw_only=True)
    class Widget(KubeObject):
        spec: WidgetSpec
        status: WidgetStatus = WidgetStatus()

    return Widget


def test_a_rule_for_all_versions_fits_each_of_them() -> None:
    options: Any = {"versions": [Version("v1alpha1", OldWidget, to_stored, from_stored)]}
    rule = Rule("spec", "self.owner != 'root'", "m")
    with pytest.raises(ConfigError, match="for spec in v1alpha1; self.owner is not a field"):
        crd("example.com", "v1", plural="widgets", rules=[rule], **options)(copy_of_widget())
    columns = [Column("User", ".spec.user"), Column("Owner", ".spec.owner")]
    crd("example.com", "v1", plural="widgets", columns=columns, **options)(copy_of_widget())


# ---- immutable values ----------------------------------------------------------------------------


def test_an_assignment_is_refused_with_the_way_to_a_changed_copy() -> None:
    @frozen
    class Size(Struct):
        width: int = 0

    @frozen
    class Plain:
        width: int = 0

    with pytest.raises(
        FrozenInstanceError, match=r"Size.width cannot .* value.evolve\(width=...\)"
    ):
        Size().width = 1  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError, match=r"use the copy that attrs.evolve\(value, width="):
        Plain().width = 1  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError, match=r"ObjectMeta.name .* value.evolve\(name=...\)"):
        ObjectMeta(name="a").name = "b"  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError, match="Size.width cannot"):
        del Size().width
    assert Size().evolve(width=2).width == 2


def test_classes_share_one_text_which_is_that_of_attrs() -> None:
    def made(decorate: Any) -> list[Any]:
        @decorate
        class Part:
            width: int = 0
            secret: str = attrs.field(default="s", repr=False)
            long: str = attrs.field(default="long", repr=len)
            inner: Any = None

        @decorate
        class Own:
            width: int = 0

            def __repr__(self) -> str:
                return "own"

        @decorate(repr=False)
        class Silent(Own):
            pass

        ring: list[Any] = []
        ring.append(Part(inner=ring))
        return [Part(inner=Part(width=1)), Own(), Silent(), ring[0]]

    ours = made(frozen)
    assert list(map(repr, ours)) == list(map(repr, made(attrs.frozen)))
    assert type(ours[0]).__repr__ is Sizes.__repr__ is ObjectMeta.__repr__


@frozen
class Sizes(Struct):
    """Part."""

    size: int = 1


@frozen
class Seen(Struct):
    """When it was seen."""

    last: Time | None = None


@pytest.mark.parametrize(
    ("value", "fix"),
    [
        (datetime(2026, 1, 2, tzinfo=UTC), r"write VALUE.timestamp\(\)"),
        ("2026-01-02T00:00:00Z", r"write datetime.fromisoformat\(TEXT\).timestamp\(\)"),
    ],
)
def test_a_time_that_is_no_number_is_named_with_the_way_to_one(value: Any, fix: str) -> None:
    said = rf"Seen.last: is .*2026.*, but a Time is a number: seconds since the epoch; {fix}"
    with pytest.raises(ConfigError, match=said):
        encode(Seen(last=value))
    assert encode(Seen(last=1.0)) == {"last": "1970-01-01T00:00:01Z"}


@pytest.mark.parametrize(
    ("columns", "printed"),
    [
        ((), []),
        ((Column("Size", ".spec.size", "integer"),), ["Size", "Age"]),
        (
            (Column("AGE", ".metadata.creationTimestamp", "date"), Column("B", ".metadata.name")),
            ["AGE", "B"],
        ),
    ],
)
def test_the_age_is_printed_after_other_columns(columns: Any, printed: list[str]) -> None:
    @crd("example.com", "v1", plural="sizes", columns=columns)
    @frozen
    class Sized(KubeObject):
        """Whole."""

        spec: Sizes = Sizes()

    (version,) = crd_of(Sized)["spec"]["versions"]
    found = version.get("additionalPrinterColumns", [])
    assert [each["name"] for each in found] == printed
    assert all(each["type"] == "date" for each in found if each["name"].lower() == "age")
