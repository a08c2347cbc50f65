"""What the docstring of a package names is there: its modules, and names that they define."""

from __future__ import annotations

import ast
import keyword
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

SRC = Path(__file__).parents[2] / "src" / "kueuelib"
PACKAGES = sorted(path.parent for path in SRC.rglob("__init__.py"))


@cache
def _defined(module: Path) -> frozenset[str]:
    return frozenset(_names(module))


def _names(module: Path) -> Iterator[str]:
    for node in ast.parse(module.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Assign):
            yield from (name.id for name in node.targets if isinstance(name, ast.Name))
        elif isinstance(node, ast.If):  # what a package exports
            yield from re.findall(r"\w+", ast.unparse(node))


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: str(path.relative_to(SRC.parent)))
def test_the_docstring_of_a_package_names_what_exists(package: Path) -> None:
    init = package / "__init__.py"
    docstring = ast.get_docstring(ast.parse(init.read_text(encoding="utf-8"))) or ""
    prose = re.sub(r"```.*?```|^    .*?$", "", docstring, flags=re.DOTALL | re.MULTILINE)
    named = {word for word in re.findall(r"`([a-z_]+)`", prose) if not keyword.iskeyword(word)}
    siblings = {path.stem for path in package.iterdir()}
    rest = named - siblings - {"kueuelib"}
    defined = {name for path in package.rglob("*.py") for name in _defined(path)} if rest else set()
    assert rest - defined == set()
