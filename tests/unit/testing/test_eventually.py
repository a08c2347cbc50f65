"""What `eventually` waits for, and what it does not."""

from __future__ import annotations

import pytest

from kueuelib.errors import ApiError, Invalid, NotFound
from kueuelib.testing import eventually


async def test_a_refusal_that_no_repetition_changes_is_raised_at_once() -> None:
    asked = []

    async def refused() -> bool:
        asked.append(1)
        raise Invalid("the object is invalid")

    with pytest.raises(Invalid):
        await eventually(refused, within=5)
    assert len(asked) == 1


async def test_what_may_still_come_is_waited_for() -> None:
    answers: list[ApiError] = [NotFound("no"), NotFound("no")]

    async def look() -> bool:
        if answers:
            raise answers.pop()
        return True

    assert await eventually(look, within=5)
