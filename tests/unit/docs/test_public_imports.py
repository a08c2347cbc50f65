"""Pages and examples import what users may import."""

from __future__ import annotations

import re

from .blocks import ROOT, blocks

_INTERNAL = re.compile(
    r"^\s*(?:from|import) kueuelib\.(?:api|cli|controllers|faces|machinery|pages|workload)\b",
    re.MULTILINE,
)


def test_no_page_or_example_imports_an_internal_package() -> None:
    texts = {str(block): block.text for block in blocks("python", "py")}
    for path in sorted((ROOT / "examples").rglob("*.py")):
        texts[str(path.relative_to(ROOT))] = path.read_text(encoding="utf-8")
    assert len(texts) > 50
    assert [where for where, text in texts.items() if _INTERNAL.search(text)] == []
