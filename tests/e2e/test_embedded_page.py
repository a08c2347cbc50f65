"""The test in docs/embedded.md runs under pytest-asyncio's default mode."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs/embedded.md"


def test_the_test_on_the_page_passes_without_any_configuration(tmp_path: Path) -> None:
    blocks = PAGE.read_text(encoding="utf-8").split("```python\n")[1:]
    (block,) = (each.partition("```")[0] for each in blocks if "async def test_" in each)
    (tmp_path / "test_page.py").write_text(block, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "my_operator"]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout
