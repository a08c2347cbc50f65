"""The page of a job kind's methods is up to date, and says of each when it is called."""

from __future__ import annotations

import re

import attrs

from kueuelib import jobs
from kueuelib.jobs import GenericJob, JobSettings

from .job_methods import CALLED, KEP_369, PAGE, WITHOUT, capabilities, functions, page


def test_the_page_is_what_is_generated() -> None:
    command = "python tests/unit/docs/job_methods.py > docs/reference/job-methods.md"
    assert PAGE.read_text() == page(), f"run `{command}`"


def test_every_method_that_a_kind_writes_is_described_and_no_other() -> None:
    classes = [GenericJob, *capabilities().values()]
    assert {name for cls in classes for name in functions(cls)} == CALLED.keys()
    assert capabilities().keys() == WITHOUT.keys()


def test_the_names_beside_those_of_the_kep_exist() -> None:
    known = {
        "client",
        "recorder",
        *(f"JobSettings.{each.name}" for each in attrs.fields(JobSettings)),
    }
    known |= {*jobs.__all__, *CALLED, *vars(GenericJob), *GenericJob.__annotations__}
    known |= {f"{name}.{method}" for name, cls in capabilities().items() for method in vars(cls)}
    named = re.findall(r"`(\w+(?:\.\w+)?)[`\[(]", " ".join(KEP_369.values()))
    upstream = {"RunWithPodSetsInfo", "RestorePodSetsInfo"}
    assert {each for each in named if each not in known} == upstream
