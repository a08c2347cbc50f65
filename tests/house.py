"""Counts what a newcomer has to hold in the head: `python tests/house.py` prints the table.

A class name has several meanings if two modules of `src` define it; a circle is one of modules that
import each other, also under `TYPE_CHECKING`, where `src` hides it from the interpreter.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src"
OUTSIDE = re.compile(
    r"\bspec/(?:api|cohorts-and-fair-sharing|field|framework|jobs|scenarios|scheduling|storm|"
    r"submitters|topology)\b(?!/)"
)
"""Citations of documents that no reader has."""


def class_names(trees: Mapping[str, ast.Module]) -> dict[str, list[str]]:
    """The modules that define each class name, nested classes included."""
    names = defaultdict(list)
    for module, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                names[node.name].append(module)
    return dict(names)


def imported(module: str, package: bool, tree: ast.Module, known: Mapping[str, object]) -> set[str]:
    """The modules of `known` that a module imports at its top level, `TYPE_CHECKING` included.

    A package that re-exports the names of its own modules does not count as an importer of them.
    """

    def at_top(body: list[ast.stmt]) -> Iterator[ast.stmt]:
        for node in body:
            if isinstance(node, ast.If | ast.Try):
                yield from at_top(node.body)
                yield from at_top(node.orelse)
            else:
                yield node

    targets = set()
    for node in at_top(tree.body):
        if isinstance(node, ast.Import):
            targets |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                targets.add(inner if inner in known else node.module)
    inside = f"{module}."
    return {
        one for one in targets & known.keys() - {module} if not (package and one.startswith(inside))
    }


def circles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """The strongly connected parts of more than one module (Tarjan)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    parts = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in sorted(graph[node]):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            at = stack.index(node)
            part = stack[at:]
            del stack[at:]
            if len(part) > 1:
                parts.append(sorted(part))

    for node in sorted(graph):
        if node not in index:
            visit(node)
    return parts


def main() -> None:
    """Prints the counts, then what they count."""
    texts = {path: path.read_text() for path in sorted(SOURCE.rglob("*.py"))}
    named = {
        ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__"): path
        for path in texts
    }
    trees = {name: ast.parse(texts[path]) for name, path in named.items()}
    several = {name: where for name, where in class_names(trees).items() if len(where) > 1}
    cited = [
        f"{path.relative_to(ROOT)}: {match[0]}"
        for folder in ("src", "tests", "docs", "examples")
        for path in sorted((ROOT / folder).rglob("*"))
        if path.suffix in {".py", ".md", ".yaml"} and path != Path(__file__)
        for match in OUTSIDE.finditer(path.read_text())
    ]
    graph = {
        name: imported(name, named[name].name == "__init__.py", tree, named)
        for name, tree in trees.items()
    }
    rings = circles(graph)
    contributing = len((ROOT / "CONTRIBUTING.md").read_text().splitlines())
    print(
        f"lines of src                        {sum(len(t.splitlines()) for t in texts.values()):,}"
    )
    print(f"modules                             {len(texts):,}")
    print(f"class names with several meanings   {len(several)}")
    print(f"citations of documents outside      {len(cited)}")
    print(f"import circles                      {len(rings)}")
    print(f"lines of CONTRIBUTING.md            {contributing}")
    for name, where in sorted(several.items(), key=lambda item: (-len(item[1]), item[0])):
        print(f"  {name}: {', '.join(one.removeprefix('kueuelib.') for one in where)}")
    for line in (*cited, *(f"circle: {', '.join(ring)}" for ring in rings)):
        print(f"  {line}")


if __name__ == "__main__":
    main()
