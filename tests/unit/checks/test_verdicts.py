"""Answers are verified when they are made, and say which field is wrong."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

import pytest

from kueuelib.api.pods import Toleration
from kueuelib.checks import Pending, PodSetUpdate, Ready, Rejected, Retry
from kueuelib.checks.verdicts import LONGEST, verified

MAIN = PodSetUpdate("main")


def update(**fields: Any) -> tuple[PodSetUpdate, ...]:
    return (PodSetUpdate("main", **fields),)


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: Ready(5), "message is of type int, write a text"),
        (lambda: Retry(None), "message is of type NoneType"),
        (lambda: Rejected(b"no"), "message is of type bytes"),
        (lambda: Pending(preemption_required="yes"), "preemption_required is of type str"),
        (lambda: Pending(again="5"), "again is of type str, write a number of seconds"),
        (lambda: Pending(again=float("nan")), "again=nan is not a time"),
        (lambda: Pending(again=True), "again=True is not a time"),
        (lambda: Retry(after=dt.timedelta(minutes=5)), "after is of type timedelta"),
        (lambda: Retry(after=float("inf")), "after=inf is not a time"),
        (lambda: Retry(after=1e12), f"at most {LONGEST} seconds"),
        (lambda: Retry(after=10**400), f"at most {LONGEST} seconds"),
        (lambda: Ready(updates=MAIN), "updates is of type PodSetUpdate, write a tuple"),
        (lambda: Ready(updates=5), "updates is of type int"),
        (lambda: Ready(updates=[{"name": "main"}]), "updates[0] is of type dict"),
        (lambda: Ready(updates=(MAIN, *update(labels=5))), "updates[1] has a field of the wrong"),
        (
            lambda: Ready(updates=update(labels={"a": 5})),
            "updates[0]['labels']['a'] is of",
        ),
        (lambda: Ready(updates=update(labels={5: "a"})), "updates[0]['labels'], key 5 is of type"),
        (lambda: Ready(updates=update(annotations={"a": "\ud800"})), "is not Unicode text"),
        (
            lambda: Ready(updates=update(tolerations=(Toleration("a", toleration_seconds="5"),))),
            "['tolerationSeconds'] is of type str, write whole seconds",
        ),
    ],
)
def test_a_wrong_field_is_named(make: Callable[[], Any], told: str) -> None:
    with pytest.raises((TypeError, ValueError)) as caught:
        make()
    assert told in str(caught.value)


def test_what_can_be_sent_is_taken() -> None:
    toleration = Toleration("a", "Exists", toleration_seconds=5)
    found = Ready("ok", [PodSetUpdate("main", {"a": "b"}, tolerations=(toleration,))])
    assert found.updates == (PodSetUpdate("main", {"a": "b"}, tolerations=(toleration,)),)
    assert (Retry(after=-3).after, Pending(again=7).again) == (0.0, 7.0)


def test_what_a_terminal_would_obey_is_escaped_in_messages() -> None:
    assert Retry("a\x00b\x1b[31m\tc\nd").message == "a\\x00b\\x1b[31m\tc\nd"


def test_a_lone_surrogate_in_a_message_becomes_readable() -> None:
    assert Rejected("file \udcff").message == "file \\udcff"


def test_an_answer_is_verified_again_when_it_is_given() -> None:
    class Own(Ready):
        """A class of somebody else."""

    own = Own("fine", (MAIN,))
    assert verified(own) == Ready("fine", (MAIN,))
    object.__setattr__(own, "message", 5)
    with pytest.raises(TypeError, match="message is of type int"):
        verified(own)
    with pytest.raises(TypeError, match="answered NoneType, not Ready"):
        verified(None)
