"""The tests that pages and tables name."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import yaml

TESTS = Path(__file__).parents[2]


@cache
def names_in(path: str) -> frozenset[str]:
    """The functions, methods or scenarios of a file below `tests`."""
    text = (TESTS / path).read_text()
    if path.endswith(".yaml"):
        return frozenset(scenario["given"] for scenario in yaml.load(text, yaml.CSafeLoader))
    found = set()
    for node in ast.parse(text).body:
        match node:
            case ast.FunctionDef(name) | ast.AsyncFunctionDef(name) if name.startswith("test_"):
                found.add(name)
            case ast.ClassDef():
                found |= {
                    f"{node.name}.{method.name}"
                    for method in node.body
                    if isinstance(method, ast.FunctionDef)
                }
    return frozenset(found)


def is_test(name: str) -> bool:
    """Whether a test exists, written as file, two colons and its name or scenario."""
    path, _, test = name.partition("::")
    return test in names_in(path)


@cache
def cases_of(path: str, table: str) -> frozenset[str]:
    """The keys of a dictionary in a file below `tests`, for each of which there is a case."""
    for node in ast.parse((TESTS / path).read_text()).body:
        match node:
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.Dict(keys=keys)) if (
                name == table
            ):
                return frozenset(ast.literal_eval(key) for key in keys if key is not None)
    raise LookupError(f"{path} has no {table}")
