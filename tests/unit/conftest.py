"""What the tests about our own sources share."""

from __future__ import annotations

import ast
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "oracle"))
SRC = Path(__file__).parents[2] / "src"


@pytest.fixture(scope="session")
def trees() -> Mapping[str, ast.Module]:
    """Every module of the library by its name, parsed once: that takes seconds."""
    return {
        ".".join(path.relative_to(SRC).with_suffix("").parts).removesuffix(".__init__"): ast.parse(
            path.read_text()
        )
        for path in sorted(SRC.rglob("*.py"))
    }
