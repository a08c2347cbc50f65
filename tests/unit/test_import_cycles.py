"""No module needs, to be imported or to run, a module that needs it."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter

LATE = {
    "kueuelib.runtime.operator.declaration -> kueuelib.runtime.operator.program": (
        "`Operator.run` is the last line of a program; what runs an operator reads its declaration"
    ),
    "kueuelib.api.struct -> kueuelib.api.schema": (
        "a class is checked when it is defined, by the rules of what it becomes in a CRD"
    ),
}
"""Imports in functions that close a cycle, each with its reason."""


def _imports(module: ast.Module, *, late: bool) -> Iterator[ast.Import | ast.ImportFrom]:
    """Imports outside of functions; with `late` those inside too. None for types only."""
    inside: list[ast.AST] = [module]
    while inside:
        for child in ast.iter_child_nodes(inside.pop()):
            if isinstance(child, ast.Import | ast.ImportFrom):
                yield child
            elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) and not late:
                continue
            elif not (isinstance(child, ast.expr) or _is_for_types(child)):
                inside.append(child)


def _is_for_types(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.If)
        and isinstance(node.test, ast.Name)
        and node.test.id == "TYPE_CHECKING"
    )


def _needs(trees: Mapping[str, ast.Module], module: str, *, late: bool) -> set[str]:
    needed: set[str] = set()
    for node in _imports(trees[module], late=late):
        if isinstance(node, ast.ImportFrom):
            home = node.module or ""
            if node.level:
                home = f"{module.rsplit('.', node.level)[0]}.{home}".rstrip(".")
            for alias in node.names:
                inner = f"{home}.{alias.name}"
                needed.add(inner if inner in trees else home)
        elif isinstance(node, ast.Import):
            needed |= {alias.name for alias in node.names}
    return {each for each in needed if each in trees and each != module}


def _cycle(graph: dict[str, set[str]]) -> list[str]:
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_no_modules_import_each_other(trees: Mapping[str, ast.Module]) -> None:
    assert _cycle({module: _needs(trees, module, late=False) for module in trees}) == []


def test_imports_in_functions_hide_no_cycle_but_those_that_are_listed(
    trees: Mapping[str, ast.Module],
) -> None:
    graph = {module: _needs(trees, module, late=True) for module in trees}
    for listed in LATE:
        module, needed = listed.split(" -> ")
        assert needed in graph[module], f"{listed} is no longer an import: remove it"
        graph[module].discard(needed)
    assert _cycle(graph) == []
