"""The numbered examples, run as a reader runs them, print what they say."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

from kueuelib.runtime import Client, ObjectKey, ObjectMeta, errors, is_true, kinds
from kueuelib.testing import eventually, running

EXAMPLES = Path(__file__).parents[2] / "examples"
FILES = sorted([*EXAMPLES.glob("[0-9][0-9]_*.py"), *EXAMPLES.glob("[0-9][0-9]_*/*.py")])
PROGRAMS = [path for path in FILES if path.parent == EXAMPLES]
LIMIT = 60
"""Every example has fewer lines, its output included."""


def promised(path: Path) -> str:
    """What the comment at the end says."""
    _, _, said = path.read_text(encoding="utf-8").partition("# Prints:\n")
    return "".join(line.removeprefix("#").removeprefix(" ") for line in said.splitlines(True))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_an_example_is_short(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) < LIMIT


def test_there_are_thirteen_examples_and_the_index_has_one_line_for_each() -> None:
    numbers = [f"{number:02}" for number in range(1, 14)]
    assert sorted({path.relative_to(EXAMPLES).parts[0][:2] for path in FILES}) == numbers
    index = (EXAMPLES.parent / "docs/examples.md").read_text(encoding="utf-8")
    rows = [line for line in index.splitlines() if line.startswith("| [")]
    assert [row[3:5] for row in rows] == numbers
    assert all(f"(../examples/{path.relative_to(EXAMPLES)})" in index for path in FILES)


@pytest.mark.parametrize(
    "path", [each for each in PROGRAMS if promised(each)], ids=lambda path: path.stem
)
def test_an_example_prints_what_it_says(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(path), run_name="__main__")
    assert capsys.readouterr().out == promised(path)


async def test_the_operator_keeps_its_children_and_says_farewell(
    kube_client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    program: dict[str, Any] = runpy.run_path(str(EXAMPLES / "05_operator.py"))
    site, key = program["Site"], ObjectKey("default", "one")

    async def status() -> Any:
        return (
            (await kube_client.get(site.resource, key)).get("status", {}).get("observedGeneration")
        )

    async def text() -> str:
        return str((await kube_client.get(kinds.CONFIG_MAPS, key))["data"]["text"])

    async with running(program["app"], kube_client):
        meta = ObjectMeta(name="one", namespace="default")
        await kube_client.of(site).create(site(metadata=meta))
        await eventually(status)
        assert is_true(await kube_client.get(site.resource, key), "Ready")
        assert await text() == "hello"
        present = await kube_client.get(kinds.CONFIG_MAPS, key)
        await kube_client.replace(kinds.CONFIG_MAPS, {**present, "data": {"text": "spoiled"}})

        async def repaired() -> bool:
            return await text() == "hello"

        await eventually(repaired)
        await kube_client.delete(site.resource, key)

        async def gone() -> bool:
            try:
                await kube_client.get(site.resource, key)
            except errors.NotFound:
                return True
            return False

        await eventually(gone)
    assert "farewell, one" in capsys.readouterr().out.splitlines()
