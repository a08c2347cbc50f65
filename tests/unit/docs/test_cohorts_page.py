"""What the page on Cohorts shows can be applied as it is."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from kueuelib.api.codec import decode, encode
from kueuelib.api.kueue import ClusterQueue, Cohort
from kueuelib.api.validation import RULES
from kueuelib.app.configuration import KIND
from kueuelib.app.configuration_reading import parse_configuration
from kueuelib.app.decision_settings import engine_settings

PAGE = Path(__file__).parents[3] / "docs/cohorts.md"
CLASSES = {"Cohort": Cohort, "ClusterQueue": ClusterQueue}


def documents() -> list[dict[str, Any]]:
    blocks = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    return [found for block in blocks for found in yaml.safe_load_all(block)]


def test_objects_are_valid_and_say_nothing_that_is_not_read() -> None:
    objects = [found for found in documents() if found["kind"] != KIND]
    assert {found["kind"] for found in objects} == CLASSES.keys()
    for found in objects:
        assert RULES[found["kind"]].validate(found, None) == []
        value = decode(CLASSES[found["kind"]], found)
        assert value.spec.extra == {}
        assert decode(CLASSES[found["kind"]], encode(value)) == value


def test_the_configuration_turns_fair_sharing_on() -> None:
    (content,) = (found for found in documents() if found["kind"] == KIND)
    assert engine_settings(parse_configuration(content, "page")).fair_sharing is not None
