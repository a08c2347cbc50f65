"""The documentation site builds without a warning, and its navigation holds every page."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from kueuelib import runtime

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"


def test_one_page_lists_every_other_once() -> None:
    listed = re.findall(r"^- \[.+?\]\(([^)]+)\)", (DOCS / "pages.md").read_text(), re.MULTILINE)
    pages = [
        str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md") if "_build" not in path.parts
    ]
    assert sorted(listed) == sorted(set(pages) - {"index.md", "pages.md"})


def test_every_public_module_has_a_page() -> None:
    names = re.findall(r"^\| `(kueuelib[.\w]*)`", (DOCS / "stability.md").read_text(), re.MULTILINE)
    assert len(names) > 5
    for name in names:
        page = DOCS / f"reference/{name.removeprefix('kueuelib.')}.md"
        assert f".. automodule:: {name}\n" in page.read_text(), name


def test_every_name_of_the_runtime_is_in_the_reference_once() -> None:
    pages = "".join(page.read_text() for page in (DOCS / "reference").glob("runtime*.md"))
    listed = re.findall(r"^\.\. (?:auto|py:)(?:class|function|data):: (\w+)", pages, re.MULTILINE)
    elsewhere = {"errors", "field", "kinds", "predicates"}
    assert sorted(listed) == sorted(set(runtime.__all__) - elsewhere)


def test_the_extra_docs_brings_all_that_nox_s_docs_needs() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    names = {re.split(r"[><=~]", each)[0] for each in extras["docs"]}
    assert names >= {"nox", "sphinx", "furo", "myst-parser"}


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("furo") is None, reason="needs `pip install -e '.[docs]'`"
)
def test_the_site_builds_without_warnings(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", str(DOCS), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    reference = (tmp_path / "reference/runtime.html").read_text()
    assert 'id="kueuelib.runtime.Operator.reconciles"' in reference
    assert "Args:" not in reference
    assert "<td><p><code" in (tmp_path / "reference/kinds.html").read_text()
