"""anyio starts and bounds tasks; what asyncio still does has its reason in a design document."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/designs/0011-anyio.md"
OF_ASYNCIO = {
    "TaskGroup",
    "as_completed",
    "create_task",
    "ensure_future",
    "gather",
    "run_coroutine_threadsafe",
    "shield",
    "timeout",
    "timeout_at",
    "wait",
    "wait_for",
}
"""What starts tasks or ends what they await."""

ALLOWED = {
    "app/servers.py": {"create_task", "wait"},
    "checks/evaluation.py": {"create_task", "run_coroutine_threadsafe", "wait"},
    "controllers/admission.py": {"deadlines"},
    "jobs/client/following.py": {"create_task", "gather"},
    "runtime/informer.py": {"deadlines"},
    "runtime/manager.py": {"create_task", "wait"},
    "runtime/transport.py": {"deadlines"},
    "runtime/watch.py": {"deadlines"},
}
"""By module; reasons and measurements are in the document."""
OUTSIDE = ("kueuelib.embedded", "kueuelib.integrations", "kueuelib.testing")
"""They play a cluster or run in other programs, and are not part of a manager."""


def used(nodes: Sequence[ast.AST]) -> Iterator[str]:
    """What a module uses to start or bound tasks, other than anyio."""
    for node in nodes:
        if isinstance(node, ast.ImportFrom):
            names = {alias.name for alias in node.names}
            if node.module == "asyncio":
                yield from names & OF_ASYNCIO
            elif node.module == "kueuelib.runtime.clock" and names & {"Deadlines", "Limit"}:
                yield "deadlines"
        elif isinstance(node, ast.Attribute) and (
            node.attr == "create_task"
            or (isinstance(node.value, ast.Name) and node.value.id == "asyncio")
        ):
            yield from {node.attr} & OF_ASYNCIO


def test_what_asyncio_starts_or_bounds_has_a_reason(nodes: Mapping[str, Sequence[ast.AST]]) -> None:
    """The design document names each module with its reason."""
    names = {
        f"{module.removeprefix('kueuelib.').replace('.', '/')}.py": set(used(parts))
        for module, parts in nodes.items()
        if not module.startswith(OUTSIDE)
    }
    assert {module: each for module, each in names.items() if each} == ALLOWED
    page = PAGE.read_text()
    assert [module for module in ALLOWED if f"`{module}`" not in page] == []
