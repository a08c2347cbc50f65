"""The metadata of a configuration key, besides its name, type and default.

```python
timeout: Duration = key(Duration(300), live=True)
backoff_limit_count: int | None = key(None, live=True, rule=at_least(0))
```

The rules of several keys together are in `configuration_rules`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar, cast

import attrs

from kueuelib.app.decoding import REFUSED, camel
from kueuelib.app.refusals import Refusal
from kueuelib.errors import InvalidSelector
from kueuelib.machinery.selectors import from_label_selector

T = TypeVar("T", bound=attrs.AttrsInstance)

_LIVE: Final = "live"
_RULE: Final = "rule"


@attrs.frozen
class Rule:
    """What a value has to meet; an absent one meets everything.

    Attributes:
        problem: what is wrong with a value, after the name of its key; empty: nothing.
        fix: what to write instead.
    """

    problem: Callable[[Any], str]
    fix: str


def at_least(least: float) -> Rule:
    """A number that is not smaller."""
    return Rule(lambda value: "" if value >= least else f" is {value}", f"give {least} or more")


def more_than(bound: float) -> Rule:
    """A number that is larger, or none."""
    fix = f"give more than {bound}, or leave it out"
    return Rule(lambda value: "" if value > bound else f" is {value}", fix)


def one_of(*words: str) -> Rule:
    """One of a few words."""
    fix = f"write {' or '.join(words)}"
    return Rule(lambda value: "" if value in words else f" is {value!r}", fix)


def _selector_problem(value: Any) -> str:
    try:
        from_label_selector(value)
    except InvalidSelector as error:
        return f": {error}"
    return ""


NOT_ZERO: Final = Rule(
    lambda value: "" if value else " is 0", "give a positive number, or a negative one for no limit"
)
PORT: Final = Rule(
    lambda value: "" if 0 < value < 65536 else f" is {value}", "give a port from 1 to 65535"
)
SELECTOR: Final = Rule(_selector_problem, "write a valid label selector")


def key(
    default: Any, *, live: bool = False, rule: Rule | None = None, refused: bool = False
) -> Any:
    """The field of a key.

    Args:
        default: what it says when it is absent.
        live: whether a changed value takes effect at once, without a restart.
        rule: what its values have to meet.
        refused: whether it is known, and whatever it says is refused.
    """
    return attrs.field(default=default, metadata={_LIVE: live, _RULE: rule, REFUSED: refused})


def check_keys(block: Any, path: str = "") -> Iterator[Refusal]:
    """Refuses a value that does not meet the rule of its key; what is turned off is not looked at.

    Args:
        block: the configuration, or a block of it.
        path: that of the block.
    """
    if not _is_on(block):
        return
    for field in attrs.fields(type(block)):
        here, value = _below(path, field), getattr(block, field.name)
        rule = rule_of(field)
        problem = rule.problem(value) if rule is not None and value is not None else ""
        if rule is not None and problem:
            yield Refusal(f"{here}{problem}", rule.fix)
        if attrs.has(type(value)):
            yield from check_keys(value, here)
        for index, item in enumerate(value if isinstance(value, tuple) else ()):
            if attrs.has(type(item)):
                yield from check_keys(item, f"{here}[{index}]")


def is_live(field: attrs.Attribute[Any]) -> bool:
    """Whether a changed value of a key takes effect at once."""
    return bool(field.metadata.get(_LIVE))


def rule_of(field: attrs.Attribute[Any]) -> Rule | None:
    """The values that a key allows; None: all of its type."""
    rule: Rule | None = field.metadata.get(_RULE)
    return rule


def with_live_keys(old: T, new: T) -> T:
    """The old configuration, or block of it, with the new values of the keys that are live.

    A block that is added, removed, or turned on or off stays as it was.
    """
    if not (_is_on(old) and _is_on(new)):
        return old
    changes: dict[str, Any] = {}
    for field in attrs.fields(type(old)):
        one, other = getattr(old, field.name), getattr(new, field.name)
        if is_live(field):
            changes[field.name] = other
        elif attrs.has(type(one)) and type(other) is type(one):
            changes[field.name] = with_live_keys(one, other)
    evolved: T = attrs.evolve(cast(Any, old), **changes)
    return evolved


def _is_on(block: Any) -> bool:
    """Whether a block applies; its switch does not count if that is live itself."""
    switches = [field for field in attrs.fields(type(block)) if field.name == "enable"]
    return not switches or is_live(switches[0]) or block.enable


def _below(path: str, field: attrs.Attribute[Any]) -> str:
    name = camel(field.name)
    return f"{path}.{name}" if path else name
