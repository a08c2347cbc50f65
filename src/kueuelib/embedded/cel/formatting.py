"""`"...".format([...])`."""

from __future__ import annotations

import math
import re
from typing import Any

from kueuelib.embedded.cel.budget import Budget
from kueuelib.embedded.cel.conversions import format_double
from kueuelib.embedded.cel.errors import EvalError
from kueuelib.embedded.cel.times import format_duration, format_timestamp
from kueuelib.embedded.cel.values import Duration, Timestamp, TypeValue, type_name

_CLAUSE = re.compile(r"%(?:\.([0-9]{1,9}))?(.?)", re.DOTALL)
DEFAULT_PRECISION = 6
LARGEST_PRECISION = 100


def format_text(budget: Budget, template: str, values: list[Any]) -> str:
    """The template with its clauses replaced.

    Raises:
        EvalError: clauses and values do not match.
    """
    budget.spend(len(template) // 10 + 1)
    parts: list[str] = []
    position, used = 0, 0
    for clause in _CLAUSE.finditer(template):
        parts.append(template[position : clause.start()])
        position = clause.end()
        precision, verb = clause[1], clause[2]
        if verb == "%":
            parts.append("%")
            continue
        if not verb:
            raise EvalError("unexpected end of string")
        if used >= len(values):
            raise EvalError(f"index {used} out of range")
        digits = DEFAULT_PRECISION if precision is None else int(precision)
        if digits > LARGEST_PRECISION:
            raise EvalError(f"precision {digits} exceeds the maximum of {LARGEST_PRECISION}")
        text = _formatted(verb, values[used], digits, budget)
        budget.spend(len(text) // 10 + 1)
        parts.append(text)
        used += 1
    parts.append(template[position:])
    return "".join(parts)


def _formatted(verb: str, value: Any, precision: int, budget: Budget) -> str:
    if verb == "s":
        return shown(value, budget)
    number = isinstance(value, int) and type(value) is not bool
    if verb == "d":
        if number:
            return str(int(value))
        if isinstance(value, float) and not math.isfinite(value):
            return shown(value, budget)
        raise _misfit("decimal", "integers", value)
    if verb in "fe":
        if not isinstance(value, float) and not number:
            raise _misfit(
                "fixed-point" if verb == "f" else "scientific", "doubles, integers and uints", value
            )
        if isinstance(value, float) and not math.isfinite(value):
            return shown(value, budget)
        return f"{value:.{precision}{verb}}"
    if verb == "b":
        if not isinstance(value, int):
            raise _misfit("binary", "integers and bools", value)
        return f"{int(value):b}"
    if verb == "o":
        if not number:
            raise _misfit("octal", "integers", value)
        return f"{int(value):o}"
    if verb in "xX":
        if number:
            text = f"{int(value):x}"
        elif isinstance(value, str | bytes):
            text = (value.encode(errors="replace") if isinstance(value, str) else value).hex()
        else:
            raise _misfit("hex", "integers, strings and bytes", value)
        return text.upper() if verb == "X" else text
    raise EvalError(f'could not parse formatting clause: unrecognized formatting clause "{verb}"')


def _misfit(clause: str, kinds: str, value: Any) -> EvalError:
    return EvalError(f"{clause} clause can only be used on {kinds}, was given {type_name(value)}")


def shown(value: Any, budget: Budget) -> str:
    """A value as `%s` writes it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return value
    if isinstance(value, int):
        return str(int(value))
    if isinstance(value, float):
        return format_double(value, 400).replace("Inf", "Infinity").removeprefix("+")
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, Timestamp):
        return format_timestamp(value)
    if isinstance(value, Duration):
        return format_duration(value)
    if isinstance(value, TypeValue):
        return value.name
    if isinstance(value, list):
        budget.spend(len(value) + 1)
        return f"[{', '.join(shown(each, budget) for each in value)}]"
    if isinstance(value, dict):
        budget.spend(len(value) + 1)
        pairs = sorted((shown(key, budget), shown(each, budget)) for key, each in value.items())
        return f"{{{', '.join(f'{key}: {each}' for key, each in pairs)}}}"
    raise EvalError(f"string clause can only be used on strings, was given {type_name(value)}")
