"""The page of all fields is up to date, and what it calls honoured is read somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import kueuelib
from kueuelib.api.crd import KINDS

from .field_table import PAGE, STORED_ONLY, UNSERVED, fate, fields, page

SOURCE = Path(kueuelib.__file__).parent
READERS = ("scheduler", "controllers", "workload", "checks", "jobs", "app")
OWN_FOLDERS = {path: path.read_text() for name in READERS for path in (SOURCE / name).rglob("*.py")}


def test_the_page_is_what_is_generated() -> None:
    assert PAGE.read_text() == page(), (
        "run `python tests/unit/docs/field_table.py > docs/fields.md`"
    )


@pytest.mark.parametrize("kind", KINDS)
def test_an_honoured_field_is_read_outside_of_the_api(kind: str) -> None:
    text = "\n".join(OWN_FOLDERS.values())
    for path, versions in fields(kind).items():
        if fate(kind, path) != "honoured" or "v1beta2" not in versions:
            continue  # what only v1beta1 has is converted
        name = path.removesuffix("[]").rpartition(".")[2]
        attribute = re.sub("[A-Z]", lambda found: f"_{found[0].lower()}", name)
        assert re.search(rf"\.{attribute}\b|\"{name}\"", text), f"{path} is read by nobody"


def test_the_lists_of_exceptions_name_what_is_so() -> None:
    for kind, path in STORED_ONLY:
        assert path in fields(kind)
    for kind, entries in UNSERVED.items():
        for path, _, _ in entries:
            assert path not in fields(kind)
            assert not any(one.startswith(f"{path}.") for one in fields(kind))
