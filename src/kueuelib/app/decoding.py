"""Strict decoding of YAML into attrs classes, and what their keys say; all errors at once."""

from __future__ import annotations

import difflib
import re
import types
import typing
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, TypeVar, cast

import attrs

from kueuelib.api.quantity import Quantity
from kueuelib.errors import ConfigError, InvalidQuantity, InvalidSelector
from kueuelib.machinery.selectors import from_label_selector

# What is refused of a configuration file: all of it in one error, so that one run finds it.


@attrs.frozen
class ConfigurationRefusal:
    """One thing in a file that cannot be honoured.

    Attributes:
        problem: what is wrong, with the name of its key.
        fix: what to do about it.
    """

    problem: str
    fix: str

    def __str__(self) -> str:
        return f"{self.problem}; {self.fix}"


def refuse_any(source: str, refusals: Iterable[ConfigurationRefusal]) -> None:
    """Refuses a file if there is a reason; several are lines below each other.

    Args:
        source: names the file.
        refusals: what was found.

    Raises:
        ConfigError: there is at least one.
    """
    match [*refusals]:
        case []:
            return
        case [one]:
            raise ConfigError(source, one.problem, one.fix)
        case several:
            lines = "".join(f"\n  {each}" for each in several)
            raise ConfigError(source, f"{len(several)} keys are refused", f"correct all of:{lines}")


def refusal_of(attempt: Callable[[str], Any]) -> Iterator[ConfigurationRefusal]:
    """What a function that raises a `ConfigError` refuses.

    Args:
        attempt: called with what to call the file; its errors may name a key after that.
    """
    try:
        attempt("")
    except ConfigError as error:
        key = error.subject.removeprefix(": ")
        yield ConfigurationRefusal(f"{key}: {error.problem}" if key else error.problem, error.fix)


# --------------------------------------------------------------------------------------------------

T = TypeVar("T")


class Duration(float):
    """Seconds, written as a Go duration (`5m`, `1m30s`, `500ms`)."""


_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ns|us|µs|ms|s|m|h)")
_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


REFUSED = "refused"
"""In the metadata of a field: its key is known, and every value is refused."""


def parse_duration(text: str) -> Duration:
    """Seconds of a Go duration.

    Raises:
        ValueError: the text is not a duration.
    """
    if text == "0":
        return Duration(0)
    parts = _DURATION.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise ValueError(f"{text!r} is not a duration such as 5m or 1m30s")
    return Duration(sum(float(number) * _UNITS[unit] for number, unit in parts))


def camel(name: str) -> str:
    """The key of a field: `lease_duration` is `leaseDuration`."""
    head, *tail = name.split("_")
    return head + "".join(part.title() for part in tail)


def decode(
    cls: type[T], content: dict[str, Any], path: str, refusals: list[ConfigurationRefusal]
) -> T:
    """An attrs class from a mapping with camelCase keys, strictly.

    Args:
        cls: the class; a key that is refused has its default.
        content: the mapping.
        path: of the mapping.
        refusals: what is refused is appended to it.
    """
    hints = typing.get_type_hints(cls)
    fields = {camel(field.name): field.name for field in attrs.fields(cls)}  # type: ignore[arg-type]
    values: dict[str, Any] = {}
    for key, value in content.items():
        where = f"{path}.{key}" if path else str(key)
        if key not in fields:
            refused = {camel(one.name) for one in attrs.fields(cls) if one.metadata.get(REFUSED)}  # type: ignore[arg-type]
            known = sorted(fields.keys() - refused)
            near = difflib.get_close_matches(str(key), known, 1)
            fix = f"did you mean {near[0]}?" if near else f"known keys: {', '.join(known)}"
            refusals.append(ConfigurationRefusal(f"unknown key {where}", fix))
        elif value is not None:
            decoded = _value(hints[fields[key]], value, where, refusals)
            if decoded is not _UNFIT:
                values[fields[key]] = decoded
    return cls(**values)


_UNFIT: Final = object()
"""Instead of a value that is refused."""
_WORDS: dict[type, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
}


def _value(hint: Any, value: Any, where: str, refusals: list[ConfigurationRefusal]) -> Any:
    """The value, or `_UNFIT`."""

    def unfit(problem: str, fix: str) -> Any:
        refusals.append(ConfigurationRefusal(f"{where}{problem}", fix))
        return _UNFIT

    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        (hint,) = [member for member in typing.get_args(hint) if member is not types.NoneType]
        origin = typing.get_origin(hint)
    if origin is tuple:
        if not isinstance(value, list):
            return unfit(" must be a list", "write one item per line, with -")
        item = typing.get_args(hint)[0]
        items = [_value(item, part, f"{where}[{i}]", refusals) for i, part in enumerate(value)]
        return _UNFIT if _UNFIT in items else tuple(items)  # the others keep their numbers
    if hint is Quantity:
        try:
            return Quantity.parse(value)
        except InvalidQuantity as error:
            problem, _, fix = str(error).partition("; ")
            return unfit(f": {problem}", fix)
    if (origin is not None or attrs.has(hint)) and not isinstance(value, dict):
        return unfit(" must be a mapping", "write its fields below it")
    if origin is not None:
        item = typing.get_args(hint)[1]
        if item is Any:
            return value
        parts = {str(k): _value(item, v, f"{where}[{k}]", refusals) for k, v in value.items()}
        return {name: part for name, part in parts.items() if part is not _UNFIT}
    if attrs.has(hint):
        return decode(hint, value, where, refusals)
    if hint is Duration:
        try:
            return parse_duration(value if isinstance(value, str) else "")
        except ValueError:
            return unfit(f" must be a duration, not {value!r}", "write for example 5m")
    numeric = hint is float and type(value) is int
    if type(value) is not hint and not numeric:
        return unfit(f" must be {_WORDS[hint]}, not {value!r}", "correct the value")
    return hint(value)


# ---- the metadata of a configuration key, besides its name, type and default ---------------------
# A key says whether it takes effect at once, `live=True`, and what it has to meet,
# `rule=at_least(0)`. The rules of several keys together are in `configuration_rules`.

Block = TypeVar("Block", bound=attrs.AttrsInstance)

_LIVE: Final = "live"
_RULE: Final = "rule"


@attrs.frozen
class KeyRule:
    """What a value has to meet; an absent one meets everything.

    Attributes:
        problem: what is wrong with a value, after the name of its key; empty: nothing.
        fix: what to write instead.
    """

    problem: Callable[[Any], str]
    fix: str


def at_least(least: float) -> KeyRule:
    """A number that is not smaller."""
    return KeyRule(lambda value: "" if value >= least else f" is {value}", f"give {least} or more")


def more_than(bound: float) -> KeyRule:
    """A number that is larger, or none."""
    fix = f"give more than {bound}, or leave it out"
    return KeyRule(lambda value: "" if value > bound else f" is {value}", fix)


def one_of(*words: str) -> KeyRule:
    """One of a few words."""
    fix = f"write {' or '.join(words)}"
    return KeyRule(lambda value: "" if value in words else f" is {value!r}", fix)


def _selector_problem(value: Any) -> str:
    try:
        from_label_selector(value)
    except InvalidSelector as error:
        return f": {error}"
    return ""


NOT_ZERO: Final = KeyRule(
    lambda value: "" if value else " is 0", "give a positive number, or a negative one for no limit"
)
PORT: Final = KeyRule(
    lambda value: "" if 0 < value < 65536 else f" is {value}", "give a port from 1 to 65535"
)
SELECTOR: Final = KeyRule(_selector_problem, "write a valid label selector")


def key(
    default: Any, *, live: bool = False, rule: KeyRule | None = None, refused: bool = False
) -> Any:
    """The field of a key.

    Args:
        default: what it says when it is absent.
        live: whether a changed value takes effect at once, without a restart.
        rule: what its values have to meet.
        refused: whether it is known, and whatever it says is refused.
    """
    return attrs.field(default=default, metadata={_LIVE: live, _RULE: rule, REFUSED: refused})


def check_keys(block: Any, path: str = "") -> Iterator[ConfigurationRefusal]:
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
            yield ConfigurationRefusal(f"{here}{problem}", rule.fix)
        if attrs.has(type(value)):
            yield from check_keys(value, here)
        for index, item in enumerate(value if isinstance(value, tuple) else ()):
            if attrs.has(type(item)):
                yield from check_keys(item, f"{here}[{index}]")


def is_live(field: attrs.Attribute[Any]) -> bool:
    """Whether a changed value of a key takes effect at once."""
    return bool(field.metadata.get(_LIVE))


def rule_of(field: attrs.Attribute[Any]) -> KeyRule | None:
    """The values that a key allows; None: all of its type."""
    rule: KeyRule | None = field.metadata.get(_RULE)
    return rule


def with_live_keys(old: Block, new: Block) -> Block:
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
    evolved: Block = attrs.evolve(cast(Any, old), **changes)
    return evolved


def _is_on(block: Any) -> bool:
    """Whether a block applies; its switch does not count if that is live itself."""
    switches = [field for field in attrs.fields(type(block)) if field.name == "enable"]
    return not switches or is_live(switches[0]) or block.enable


def _below(path: str, field: attrs.Attribute[Any]) -> str:
    name = camel(field.name)
    return f"{path}.{name}" if path else name
