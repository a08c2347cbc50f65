"""Every name that a module of the library defines is used: by the library, or by its users.

A name counts as used if the word occurs once more, in the sources, documents or examples, or if it
is public. Tests alone keep nothing alive, except in `kueuelib.testing`, which is made for tests.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]
USERS = ("src", "docs", "examples", "README.md", "CONTRIBUTING.md", "pyproject.toml")
TESTS = ("tests",)
BY_PYTEST = "pytest_"


def _words(*places: str) -> Counter[str]:
    counted: Counter[str] = Counter()
    for place in map(ROOT.__truediv__, places):
        for path in (place,) if place.is_file() else place.rglob("*"):
            if path.suffix in (".py", ".html", ".md", ".toml", ".txt", ".yaml"):
                counted.update(re.findall(r"\w+", path.read_text()))
    return counted


def _defined(module: ast.Module) -> Iterator[str]:
    """The names of the module itself; a decorated function may be used by its decorator."""
    functions = ast.FunctionDef | ast.AsyncFunctionDef
    for node in module.body:
        if isinstance(node, ast.ClassDef | functions):
            if isinstance(node, ast.ClassDef) or not node.decorator_list:
                yield node.name
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                yield from (each.id for each in ast.walk(target) if isinstance(each, ast.Name))


def test_no_name_is_defined_and_never_used(trees: Mapping[str, ast.Module]) -> None:
    users, tests = _words(*USERS), _words(*TESTS)
    public = set(re.findall(r"\w+", (ROOT / "tests/unit/faces.txt").read_text()))
    unused = [
        f"{module}: {name}"
        for module, tree in trees.items()
        for name in _defined(tree)
        if users[name] == 1
        and not (name in public or name.startswith(("__", BY_PYTEST)))
        and not (module.startswith("kueuelib.testing") and tests[name])
    ]
    assert unused == []
