"""A name says what it stands for: none of those that fit everything."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EMPTY = {"found", "stuff", "thing", "things", "tmp"}
"""Write instead what it is: `workload`, `errors`, `match`, or what a mapping leads to."""


def empty_names(nodes: Iterable[ast.AST]) -> Iterator[tuple[str, int]]:
    """Every empty name that something among the parts of a module is given, with its line."""
    for node in nodes:
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                pass
            case ast.arg(arg=name):
                pass
            case ast.ExceptHandler(name=str(name)) | ast.MatchMapping(rest=str(name)):
                pass
            case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                pass
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                pass
            case _:
                continue
        if name.strip("_") in EMPTY:
            yield name, node.lineno


def _parts(source: str) -> Iterator[ast.AST]:
    return ast.walk(ast.parse(source))


def test_names_say_what_they_stand_for(nodes: Mapping[str, Sequence[ast.AST]]) -> None:
    examples = sorted((ROOT / "examples").rglob("*.py"))
    empty = [
        f"{module}:{line}: {name!r} says nothing: name what it is"
        for module, parts in (
            *nodes.items(),
            *((str(path.relative_to(ROOT)), _parts(path.read_text())) for path in examples),
        )
        for name, line in sorted(empty_names(parts))
    ]
    assert not empty, "\n".join(empty)


@pytest.mark.parametrize(
    "source",
    [
        "found = 1",
        "for key, found in pairs: pass",
        "[found for found in pairs]",
        "(found := 1)",
        "def f(found): pass",
        "lambda found: 1",
        "class C:\n    found: int",
        "self._found = 1",
        "def found(): pass",
        "with a as found: pass",
        "try: pass\nexcept E as found: pass",
        "match a:\n    case {'b': found}: pass",
    ],
)
def test_an_empty_name_is_noticed(source: str) -> None:
    assert list(empty_names(_parts(source)))


@pytest.mark.parametrize(
    "source", ["text = 'not found'", "not_found = 1", "other.found()", "# found"]
)
def test_other_uses_of_the_word_are_not(source: str) -> None:
    assert not list(empty_names(_parts(source)))
