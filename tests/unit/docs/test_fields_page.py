"""The page of all fields is up to date, and what it calls honoured has a test."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from kueuelib.api.crd import KINDS, crd
from kueuelib.api.kinds import KUEUE
from kueuelib.api.missing_features import KEYS, MANAGED_BY, RECORDS
from kueuelib.embedded.schema.structural import StructuralSchema
from kueuelib.scheduler.explain.problems import unhonoured_keys

from .field_table import (
    FACTS,
    HONOURED,
    OWN,
    PAGE,
    STORED_ONLY,
    UNSERVED,
    UPSTREAM_KEYS,
    VERSIONS,
    WRITTEN,
    fate,
    fate_of_key,
    fields,
    leaves,
    page,
)
from .field_tests import SHOWN
from .named_tests import is_test

KUEUE_CRDS = os.environ.get("KUEUE_CRDS", "")
"""A folder with the CRDs of Kueue, to compare with."""


def test_the_page_is_what_is_generated() -> None:
    assert PAGE.read_text() == page(), (
        "run `python tests/unit/docs/field_table.py > docs/fields.md`"
    )


@pytest.mark.parametrize("kind", KINDS)
def test_every_honoured_field_has_a_test_that_fails_without_it(kind: str) -> None:
    honoured = {
        path.removeprefix("spec.")
        for path in fields(kind)
        if fate(kind, path).startswith("honoured")
    }
    assert SHOWN[kind].keys() == honoured
    for test in SHOWN[kind].values():
        assert is_test(test), test


def _known() -> dict[str, set[tuple[str, str]]]:
    """The fields of today's Kueue, each with its version, by kind."""
    facts = yaml.load(FACTS.with_name("fields.yaml").read_text("utf-8"), yaml.CSafeLoader)
    return {
        kind: {
            (path, version)
            for named, paths in found.items()
            for path in paths
            for version in (VERSIONS if named == "both" else (named,))
        }
        for kind, found in facts.items()
    }


UPSTREAM = _known()


def _of_crds() -> dict[str, set[tuple[str, str]]]:
    """The fields of Kueue's own CRDs."""
    found: dict[str, set[tuple[str, str]]] = {}
    for path in Path(KUEUE_CRDS).glob("*.yaml"):
        for one in yaml.load_all(path.read_text(), yaml.CSafeLoader):
            for version in one["spec"]["versions"] if one else ():
                schema = version["schema"]["openAPIV3Schema"]
                known = found.setdefault(one["spec"]["names"]["kind"], set())
                known |= {(field, version["name"]) for field in leaves(schema)}
    return found


@pytest.mark.skipif(not KUEUE_CRDS, reason="KUEUE_CRDS does not name config/components/crd/bases")
def test_the_known_fields_are_those_of_the_crds_of_kueue() -> None:
    assert _of_crds() == UPSTREAM


def test_the_page_names_every_kind_of_kueue_that_is_not_served() -> None:
    missing = sorted(UPSTREAM.keys() - {*KINDS})
    assert missing == ["MultiKueueCluster", "MultiKueueConfig"]
    (sentence,) = re.findall(r"There are no ([^.]*) kinds\.", page())
    assert sorted(re.findall("`(.*?)`", sentence)) == missing


@pytest.mark.parametrize("kind", UNSERVED)
def test_what_is_not_served_is_refused_as_unknown(kind: str) -> None:
    for version in crd(kind)["spec"]["versions"]:
        schema = StructuralSchema.of(version["schema"]["openAPIV3Schema"])
        for path, named, _ in UNSERVED[kind]:
            if named not in ("both", version["name"]):
                continue
            value: Any = {}
            for name in reversed(path.split(".")):
                value = {name.removesuffix("[]"): [value] if name.endswith("[]") else value}
            assert schema.prune(value) == [path.replace("[]", "[0]")]


@pytest.mark.parametrize("kind", KINDS)
def test_the_page_has_every_field_of_kueue_and_says_which_ones_are_ours(kind: str) -> None:
    theirs = UPSTREAM[kind]
    ours = {(path, one) for path, versions in fields(kind).items() for one in versions}
    own = {(path, one) for (of, path), found in OWN.items() if of == kind for one in found}
    assert ours - theirs == own
    unserved = set()
    for path, named, _ in UNSERVED.get(kind, ()):
        versions = VERSIONS if named == "both" else (named,)
        below = {
            (field, version)
            for field, version in theirs - ours
            if version in versions and re.fullmatch(rf"{re.escape(path)}(?:[.\[].*)?", field)
        }
        assert {version for _, version in below} == {*versions}, path
        unserved |= below
    assert theirs - ours == unserved


def test_the_lists_of_exceptions_name_what_is_so() -> None:
    for kind, path in STORED_ONLY:
        assert any(one == path or one.startswith((f"{path}.", f"{path}[")) for one in fields(kind))
    for kind, entries in UNSERVED.items():
        for path, _, _ in entries:
            assert path not in fields(kind)
            assert not any(one.startswith(f"{path}.") for one in fields(kind))


ROWS = [(f"{field} {name}", name) for field, found in UPSTREAM_KEYS.items() for name in found]


@pytest.mark.parametrize(("row", "name"), ROWS)
def test_every_label_and_annotation_of_kueue_has_one_fate_and_a_test(row: str, name: str) -> None:
    field = row.split(maxsplit=1)[0]
    fate = fate_of_key(field, name)
    if fate in ("honoured", "written"):
        assert is_test({**HONOURED, **WRITTEN}[row])
        return
    metadata = {field: {f"{KUEUE}/{name}": "true"}}
    mentioned = [one.meaning for one in unhonoured_keys("Job a", metadata, ())]
    if fate == "a record":
        assert mentioned == []
    else:
        assert fate == f"waits: {mentioned[0]}"  # tests of the engine walk through KEYS


def test_the_page_knows_every_label_and_annotation_of_ours_that_is_one_of_kueue() -> None:
    rows = {row for row, _ in ROWS}
    assert rows >= {*HONOURED, *WRITTEN}
    upstream = {f"{KUEUE}/{name}" for _, name in ROWS}
    assert upstream >= {*KEYS} - {MANAGED_BY}
    assert {*RECORDS} - upstream == {f"{KUEUE}/workload-uid"}
