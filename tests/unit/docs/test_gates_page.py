"""The page of feature gates is up to date, and has every gate of Kueue; the tests of the
configuration try each value of each gate.
"""

from __future__ import annotations

from pathlib import Path

import yaml

from kueuelib.app.feature_gates import FREE, KNOWN, ON

from .gate_table import ALWAYS, GATE_TESTS, PAGE, page
from .named_tests import cases_of, is_test, names_in

FACTS = Path(__file__).parents[2] / "upstream" / "feature_gates.yaml"
EARLIER = {"LendingLimit", "QueueVisibility"}
"""Gates of earlier versions of Kueue."""


def test_the_page_is_what_is_generated() -> None:
    command = "python tests/unit/docs/gate_table.py > docs/feature-gates.md"
    assert PAGE.read_text() == page(), f"run `{command}`"


def test_the_page_has_every_gate_of_kueue() -> None:
    assert {*KNOWN} == {*yaml.safe_load(FACTS.read_text("utf-8")), *EARLIER, "AllAlpha", "AllBeta"}


def test_every_gate_that_is_honoured_or_always_on_has_a_test_that_fails_without_it() -> None:
    assert "test_a_gate_reaches_its_part" in names_in(GATE_TESTS)
    assert cases_of(GATE_TESTS, "GATES") == FREE
    assert ALWAYS.keys() == ON
    assert all(map(is_test, ALWAYS.values()))
