"""What the tests about our own sources share."""

from __future__ import annotations

import ast
import gc
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from kueuelib.runtime.entry import uncollected

sys.path.insert(0, str(Path(__file__).parents[1] / "oracle"))
SRC = Path(__file__).parents[2] / "src"


@pytest.fixture(scope="session")
def trees() -> Mapping[str, ast.Module]:
    """Every module of the library by its name, parsed once: that takes seconds.

    The garbage collector never goes through this million of objects, which live until the end.
    """
    with uncollected():
        parsed = {_name(path): ast.parse(path.read_text()) for path in sorted(SRC.rglob("*.py"))}
        gc.freeze()
    return parsed


@pytest.fixture(scope="session")
def nodes(trees: Mapping[str, ast.Module]) -> Mapping[str, Sequence[ast.AST]]:
    """All parts of every module, outer ones first, as `ast.walk` gives them."""
    return {module: [*ast.walk(tree)] for module, tree in trees.items()}


def _name(path: Path) -> str:
    return ".".join(path.relative_to(SRC).with_suffix("").parts).removesuffix(".__init__")
