"""The rewriting of attrs classes for the compiler gives classes that behave as before."""

from __future__ import annotations

import ast
import importlib.util
import types
from pathlib import Path
from typing import Any

import attrs
import pytest

pytest.importorskip("hatchling")

ROOT = Path(__file__).parents[3]
PACKAGE = ROOT / "src" / "kueuelib"

MODULE = '''"""A module."""

from __future__ import annotations

import attrs


def record(cls):
    return attrs.define(unsafe_hash=True)(cls)


def value(cls):
    return attrs.define(eq=False)(cls)


@attrs.frozen
class Frozen:
    """One with a bit of everything.

    Attributes:
        name: its name.
    """

    name: str
    count: int = 3
    parts: dict[str, int] = attrs.field(factory=dict)
    """Its parts."""
    unseen: float = attrs.field(default=0.5, eq=False, repr=False)
    twice: int = attrs.field(init=False)
    _made: list[int] = attrs.field(factory=list, init=False, eq=False)

    kind = "of all"

    @twice.default
    def _twice(self) -> int:
        return 2 * self.count

    @property
    def line(self) -> str:
        """Where it is."""
        return f"{self.name}: {self.count}"


@record
class Record(Frozen):
    """One that extends another."""

    last: str = "end"

    def __repr__(self) -> str:
        return f"{self.name} to {self.last}"


@value
class Value:
    """One without content to compare."""

    text: str = ""


@attrs.define
class Changing:
    """One that has no hash."""

    text: str


@attrs.frozen
class Empty:
    """One without fields."""


def positive(instance, attribute, value):
    if value <= 0:
        raise ValueError(f"{type(instance).__name__}.{attribute.name}")


@attrs.frozen
class Checked:
    """One that looks at what it is given."""

    number: int = attrs.field(converter=int, validator=positive)
    words: tuple[str, ...] = attrs.field(default=(), converter=tuple)

    @words.validator
    def _no_doubles(self, attribute, words):
        if len(set(words)) < len(words):
            raise ValueError(attribute.name)

    def __attrs_post_init__(self):
        if self.number == len(self.words):
            raise ValueError("both")


ONE = Checked("1")
'''


def hook() -> types.ModuleType:
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


HOOK = hook()


def loaded(source: str) -> dict[str, Any]:
    """The namespace of a module, in which the compiler's decorators do nothing."""
    native: dict[str, Any] = {}
    exec(HOOK.NATIVE, native)
    native["mypyc_attr"] = lambda **_: lambda cls: cls
    helpers = {f"_{name}": native[name] for name in ("describe", "validate")}
    namespace: dict[str, Any] = {"__name__": "loaded", **native, **helpers}
    exec(source.replace(HOOK.HEADER, "pass"), namespace)
    return namespace


def rewritten(source: str) -> str:
    tree = ast.parse(source)
    return str(HOOK.rewritten(source, tree, HOOK.attrs_classes({"module": tree})["module"]))


PLAIN, MADE = loaded(rewritten(MODULE)), loaded(MODULE)


@pytest.mark.parametrize(
    "text",
    [
        "Frozen('a')",
        "Frozen('a', 4, {'b': 1}, unseen=2.0)",
        "Frozen(name='a').line",
        "Frozen('a').unseen",
        "Frozen('a').twice",
        "Frozen('a')._made",
        "Frozen.kind",
        "Frozen('a') == Frozen('a', unseen=1.0)",
        "Frozen('a') == Frozen('b')",
        "Frozen('a') == 'a'",
        "Frozen('a').parts is Frozen('a').parts",
        "Record('a', 1, {}, 0.5, 'z')",
        "Record('a', last='z', unseen=1.0).unseen",
        "Record('a') == Frozen('a')",
        "Value() == Value()",
        "len({hash(one) for one in [Value(), Value()]})",
        "Value('b')",
        "Changing('a') == Changing('a')",
        "hash(Changing('a'))",
        "Empty() == Empty()",
        "hash(Empty()) == hash(Empty())",
        "Empty()",
        "ONE",
        "Checked(2.5, ['a'])",
        "Checked('a')",
        "Checked(0)",
        "Checked(3, 'aa')",
        "Checked(2, 'ab')",
        "Frozen()",
        "Frozen('a', 1, {}, 2.0, 3)",
    ],
)
def test_a_rewritten_class_behaves_as_the_attrs_class(text: str) -> None:
    def outcome(namespace: dict[str, Any]) -> object:
        try:
            return repr(eval(text, namespace))
        except TypeError:
            return TypeError
        except ValueError as error:
            return str(error)

    assert outcome(PLAIN) == outcome(MADE)


@pytest.mark.parametrize("name", ["Frozen", "Record", "Value", "Changing", "Empty", "Checked"])
def test_attrs_takes_a_rewritten_class_for_its_own(name: str) -> None:
    def described(cls: Any) -> list[tuple[object, ...]]:
        return [
            (one.name, one.alias, one.init, one.eq, one.repr, one.kw_only, one.default is None)
            for one in attrs.fields(cls)
        ]

    plain, made = PLAIN[name], MADE[name]
    assert described(plain) == described(made)
    assert plain.__match_args__ == made.__match_args__
    assert not hasattr(plain, "__attrs_base_of_slotted__")


def test_evolve_copies_a_rewritten_value() -> None:
    before = PLAIN["Record"]("a", 1, {"b": 2}, unseen=3.0)
    after = attrs.evolve(before, count=5)
    assert (after.name, after.count, after.twice, after.unseen) == ("a", 5, 10, 3.0)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (
            "@attrs.frozen(weakref_slot=False)\nclass A:\n    '''A.'''\n\n    a: int\n",
            "weakref_slot",
        ),
        ("@attrs.frozen\nclass A:\n    '''A.'''\n\n    a: int = attrs.field(alias='b')\n", "alias"),
    ],
)
def test_what_it_does_not_know_is_refused(source: str, words: str) -> None:
    with pytest.raises(HOOK.Unsupported, match=words):
        rewritten(f"from __future__ import annotations\n\n\n{source}")


def test_every_statement_of_the_engine_keeps_its_line() -> None:
    def places(tree: ast.Module) -> set[tuple[str, int]]:
        return {
            (node.name, node.body[-1].lineno)
            for node in ast.walk(tree)
            if isinstance(node, ast.FunctionDef)
        }

    modules = [PACKAGE / each for each in HOOK.sources(PACKAGE)]
    texts = {str(path): path.read_text() for path in modules}
    trees = {path: ast.parse(text) for path, text in texts.items()}
    known = HOOK.attrs_classes(trees)
    assert sum(map(len, known.values())) > 150
    for path, text in texts.items():
        result = ast.parse(HOOK.rewritten(text, trees[path], known[path]))
        assert places(trees[path]) <= places(result), path
        assert not [
            node
            for node in result.body
            if isinstance(node, ast.ClassDef) and HOOK.attrs_class(node) is not None
        ]


def test_no_coroutine_is_compiled() -> None:
    coroutines = (ast.AsyncFunctionDef, ast.Await)
    for path in HOOK.sources(PACKAGE):
        tree = ast.parse((PACKAGE / path).read_text())
        assert not [node for node in ast.walk(tree) if isinstance(node, coroutines)], path
