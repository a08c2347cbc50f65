"""The page of feature gates is up to date, and has every gate of Kueue; the tests of the
configuration try each value of each gate.
"""

from __future__ import annotations

from pathlib import Path

import yaml

from kueuelib.app.feature_gates import KNOWN

from .gate_table import PAGE, page

FACTS = Path(__file__).parents[2] / "upstream" / "feature_gates.yaml"
EARLIER = {"LendingLimit", "QueueVisibility"}
"""Gates of earlier versions."""


def test_the_page_is_what_is_generated() -> None:
    command = "python tests/unit/docs/gate_table.py > docs/feature-gates.md"
    assert PAGE.read_text() == page(), f"run `{command}`"


def test_the_page_has_every_gate_of_kueue() -> None:
    assert {*KNOWN} == {*yaml.safe_load(FACTS.read_text("utf-8")), *EARLIER, "AllAlpha", "AllBeta"}
