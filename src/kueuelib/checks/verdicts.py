"""The answers of a check about a workload (KEP-993).

Answers come from users' code, so every field is verified when an answer is made.
"""

from __future__ import annotations

from collections.abc import Iterable
from numbers import Real

import attrs

from kueuelib.api.codec import encode
from kueuelib.api.kueue import PodSetUpdate

LONGEST = 2**31 - 1
"""The longest time that the API can hold, in seconds."""


_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(32), 127) if code not in (9, 10)}


def readable(text: str) -> str:
    r"""A text for people that can be sent: lone surrogates and control characters are escaped.

    As `\udcff` and `\x1b`; tabs and line ends stay.
    """
    return _sendable(text).translate(_CONTROLS)


def _sendable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()


def _message(value: str) -> str:
    _expect("message", value, str, "a text")
    return readable(value)


def _flag(value: bool) -> bool:
    _expect("preemption_required", value, bool, "True or False")
    return value


def _after(value: float | None) -> float | None:
    return None if value is None else _seconds("after", value)


def _again(value: float | None) -> float | None:
    return None if value is None else _seconds("again", value)


def _seconds(field: str, value: float) -> float:
    _expect(field, value, Real, "a number of seconds")
    if isinstance(value, bool) or not value <= LONGEST:  # NaN is not below anything
        raise ValueError(f"{field}={value} is not a time, write at most {LONGEST} seconds")
    return max(float(value), 0.0)


def _updates(value: Iterable[PodSetUpdate]) -> tuple[PodSetUpdate, ...]:
    _expect("updates", value, Iterable, "a tuple of PodSetUpdates")
    updates = tuple(value)
    for number, update in enumerate(updates):
        path = f"updates[{number}]"
        _expect(path, update, PodSetUpdate, "a PodSetUpdate")
        try:
            raw = encode(update)
        except (TypeError, ValueError, AttributeError) as error:
            raise TypeError(f"{path} has a field of the wrong type: {error}") from error
        _verify(path, raw)
    return updates


def _expect(path: str, value: object, wanted: type, fix: str) -> None:
    if not isinstance(value, wanted):
        raise TypeError(f"{path} is of type {type(value).__name__}, write {fix}")


def _verify(path: str, value: object) -> None:
    """Refuses values that cannot be sent to the API server."""
    if isinstance(value, dict):
        for key, inner in value.items():
            _verify(f"{path}, key {key!r}", key)
            _verify(f"{path}[{key!r}]", inner)
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            _verify(f"{path}[{number}]", inner)
    elif path.endswith("['tolerationSeconds']"):
        _expect(path, value, int, "whole seconds")
    else:
        _expect(path, value, str, "a text")
        if _sendable(str(value)) != value:
            raise ValueError(f"{path} is not Unicode text: {value!r}")


@attrs.frozen
class Pending:
    """Not decided yet: the workload keeps its quota and waits.

    Attributes:
        message: a sentence for people.
        preemption_required: the check could pass if others were preempted; only meaningful when
            the preemptions wait for a check (`preemptionPolicy: AfterCheckPassedOrOnDemand`).
        again: seconds until the check is called again, at least 1; None: the check's own interval.
    """

    message: str = attrs.field(default="", converter=_message)
    preemption_required: bool = attrs.field(default=False, converter=_flag)
    again: float | None = attrs.field(default=None, converter=_again)


@attrs.frozen
class Ready:
    """Passed. `Retry` or `Rejected` can revoke it at any time.

    Attributes:
        message: a sentence for people.
        updates: what is added to the pods when they start. Pod sets that are not named get
            nothing. Another Ready can change them until the workload is admitted.
    """

    message: str = attrs.field(default="", converter=_message)
    updates: tuple[PodSetUpdate, ...] = attrs.field(default=(), converter=_updates)


@attrs.frozen
class Retry:
    """Not now: the quota is released, a running job is suspended, and the workload starts over
    later.

    Attributes:
        message: a sentence for people.
        after: seconds until the check is Pending again; None: the `retryDelayMinutes` of the
            AdmissionCheck.
    """

    message: str = attrs.field(default="", converter=_message)
    after: float | None = attrs.field(default=None, converter=_after)


@attrs.frozen
class Rejected:
    """Never: the workload is deactivated, and an event on its job says why.

    Attributes:
        message: a sentence for people.
    """

    message: str = attrs.field(default="", converter=_message)


Verdict = Pending | Ready | Retry | Rejected


def verified(answer: object) -> Verdict:
    """An answer of a check as one of the four classes themselves, with all fields verified again.

    Raises:
        TypeError: it is none of them, or a field has the wrong type; subclasses are converted.
        ValueError: a field has an impossible value.
    """
    if isinstance(answer, Pending):
        return Pending(answer.message, answer.preemption_required, answer.again)
    if isinstance(answer, Ready):
        return Ready(answer.message, answer.updates)
    if isinstance(answer, Retry):
        return Retry(answer.message, answer.after)
    if isinstance(answer, Rejected):
        return Rejected(answer.message)
    kind = type(answer).__name__
    raise TypeError(f"answered {kind}, not Ready, Retry, Rejected or Pending")
