"""The page of a job kind's methods is up to date, and says of each when it is called."""

from __future__ import annotations

from kueuelib.jobs import GenericJob

from .job_methods import CALLED, PAGE, WITHOUT, capabilities, functions, page


def test_the_page_is_what_is_generated() -> None:
    command = "python tests/unit/docs/job_methods.py > docs/reference/job-methods.md"
    assert PAGE.read_text() == page(), f"run `{command}`"


def test_every_method_that_a_kind_writes_is_described_and_no_other() -> None:
    classes = [GenericJob, *capabilities().values()]
    assert {name for cls in classes for name in functions(cls)} == CALLED.keys()
    assert capabilities().keys() == WITHOUT.keys()
