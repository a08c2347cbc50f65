"""Pages and examples import what users may import: the faces, and nothing below them."""

from __future__ import annotations

import re

from .blocks import ROOT, blocks

GOLDEN = (ROOT / "tests/unit/faces.txt").read_text(encoding="utf-8")
STABILITY = (ROOT / "docs/stability.md").read_text(encoding="utf-8")
FACES = frozenset(re.findall(r"^# (\S+)$", GOLDEN, re.MULTILINE))
ERRORS = "kueuelib.errors"
"""The one public module that is not a package with a face."""
ABOUT_US = {"docs/doctor.md": "how to add a module to kueuelib itself"}
_IMPORT = re.compile(
    r"^\s*(?:from (kueuelib[\w.]*) import|import (kueuelib[\w., ]*))", re.MULTILINE
)


def internal(text: str) -> list[str]:
    """The modules that a program imports and a user may not."""
    found = [each.split()[0] for hit in _IMPORT.findall(text) for each in "".join(hit).split(",")]
    return [each for each in found if each not in {*FACES, ERRORS}]


def test_the_page_about_stability_names_the_faces() -> None:
    named = re.findall(r"^\| `(kueuelib[\w.]*)`", STABILITY, re.MULTILINE)
    assert sorted(named) == sorted(FACES)
    assert f"`{ERRORS}`" in STABILITY


def test_everything_below_a_face_is_internal() -> None:
    program = """
import kueuelib
from kueuelib.runtime import Client
    from kueuelib.errors import NotFound
import kueuelib.app.wiring, kueuelib.sync
import kueuelib.runtime as runtime
from kueuelib.simulator import play
from kueuelib.runtime.endpoint import Endpoint
"""
    assert internal(program) == [
        "kueuelib.app.wiring",
        "kueuelib.simulator",
        "kueuelib.runtime.endpoint",
    ]


def test_no_page_or_example_imports_an_internal_module() -> None:
    texts = {str(block): block.text for block in blocks("python", "py")}
    for path in sorted((ROOT / "examples").rglob("*.py")):
        texts[str(path.relative_to(ROOT))] = path.read_text(encoding="utf-8")
    assert len(texts) > 50
    found = {
        where.partition(":")[0]: each for where, text in texts.items() if (each := internal(text))
    }
    assert found.keys() == ABOUT_US.keys(), found
