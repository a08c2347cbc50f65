"""Who may read a path, asked of the API server, and remembered for a minute."""

from __future__ import annotations

from typing import Any

import pytest

from kueuelib.errors import Forbidden, Unauthorized
from kueuelib.runtime.access_reviews import REMEMBERED, PathReaders


class Answers:
    """A client that answers reviews, and the clock."""

    def __init__(self) -> None:
        self.now = 0.0
        self.asked: list[dict[str, Any]] = []

    def monotonic(self) -> float:
        return self.now

    async def request(self, method: str, path: str, **parts: Any) -> dict[str, Any]:
        spec = parts["body"]["spec"]
        self.asked.append(spec)
        if path.endswith("tokenreviews"):
            name = spec["token"]
            user = {"username": name, "groups": ["g"], "uid": "1", "extra": {"k": ["v"]}}
            return {"status": {"authenticated": name != "forged", "user": user}}
        return {"status": {"allowed": spec["user"] == "prometheus", "reason": "so it is"}}


def readers(answers: Answers) -> PathReaders:
    return PathReaders(answers, "/metrics", answers)  # type: ignore[arg-type]


async def test_a_reader_is_asked_about_once_a_minute() -> None:
    answers = Answers()
    found = readers(answers)
    await found.check("Bearer prometheus")
    await found.check("bearer  prometheus ")
    (token, review) = answers.asked
    assert token == {"token": "prometheus"}
    assert review == {
        "user": "prometheus",
        "groups": ["g"],
        "uid": "1",
        "extra": {"k": ["v"]},
        "nonResourceAttributes": {"path": "/metrics", "verb": "get"},
    }
    answers.now = REMEMBERED + 1
    await found.check("Bearer prometheus")
    assert len(answers.asked) == 4


@pytest.mark.parametrize("header", ["", "Basic x", "Bearer", "Bearer  ", "Bearer forged"])
async def test_without_a_token_of_somebody_nobody_is_let_in(header: str) -> None:
    with pytest.raises(Unauthorized):
        await readers(Answers()).check(header)


async def test_who_may_not_read_is_told_what_is_missing_each_time() -> None:
    answers = Answers()
    found = readers(answers)
    for _ in range(2):
        with pytest.raises(Forbidden, match='User "bob" cannot get path "/metrics": so it is'):
            await found.check("Bearer bob")
    assert len(answers.asked) == 4
