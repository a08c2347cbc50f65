"""Functions of texts: the standard ones, the extension of version 2, and regular expressions."""

from __future__ import annotations

import math
import re
import string
from itertools import islice
from typing import Any

from kueuelib.embedded.cel.conversions import format_double
from kueuelib.embedded.cel.errors import CostBudget, EvalError, traversal
from kueuelib.embedded.cel.parser import PLAIN
from kueuelib.embedded.cel.regex import compile_pattern
from kueuelib.embedded.cel.times import format_duration, format_timestamp
from kueuelib.embedded.cel.types import Library
from kueuelib.embedded.cel.values import CelDuration, Timestamp, TypeValue, type_name

# ---- `"...".format([...])` -----------------------------------------------------------------------

_CLAUSE = re.compile(r"%(?:\.([0-9]{1,9}))?(.?)", re.DOTALL)
DEFAULT_PRECISION = 6
LARGEST_PRECISION = 100


def format_text(budget: CostBudget, template: str, values: list[Any]) -> str:
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


def _formatted(verb: str, value: Any, precision: int, budget: CostBudget) -> str:
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


def shown(value: Any, budget: CostBudget) -> str:
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
    if isinstance(value, CelDuration):
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


# --------------------------------------------------------------------------------------------------

_LOWER = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)
_UPPER = str.maketrans(string.ascii_lowercase, string.ascii_uppercase)
_SPACES = (
    "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009"
    "\u200a\u2028\u2029\u202f\u205f\u3000"
)
_QUOTED = str.maketrans(
    {'"': '\\"', "\\": "\\\\", **{value: f"\\{letter}" for letter, value in PLAIN.items()}}
)


def add_texts(library: Library) -> None:
    """Adds them."""
    method, function = library.method, library.function
    method("contains", "string;string", "bool", lambda a, b: b in a, _product)
    method("startsWith", "string;string", "bool", str.startswith, lambda _, b: traversal(b))
    method("endsWith", "string;string", "bool", str.endswith, lambda _, b: traversal(b))
    method("charAt", "string;int", "string", _char_at)
    method("indexOf", "string;string", "int", _index_of, _product)
    method("indexOf", "string;string;int", "int", _index_of, _product)
    method("lastIndexOf", "string;string", "int", _last_index_of, _product)
    method("lastIndexOf", "string;string;int", "int", _last_index_of, _product)
    method("lowerAscii", "string", "string", lambda a: a.translate(_LOWER), traversal)
    method("upperAscii", "string", "string", lambda a: a.translate(_UPPER), traversal)
    method("trim", "string", "string", lambda a: a.strip(_SPACES), traversal)
    method("replace", "string;string;string", "string", _replace, budgeted=True)
    method("replace", "string;string;string;int", "string", _replace, budgeted=True)
    method("split", "string;string", "list<string>", _split, traversal)
    method("split", "string;string;int", "list<string>", _split, traversal)
    method("substring", "string;int", "string", _substring, traversal)
    method("substring", "string;int;int", "string", _substring, traversal)
    method("join", "list<string>", "string", _join, budgeted=True)
    method("join", "list<string>;string", "string", _join, budgeted=True)
    method("format", "string;list<dyn>", "string", format_text, budgeted=True)
    function("strings.quote", "string", "string", lambda a: f'"{a.translate(_QUOTED)}"', traversal)
    method("matches", "string;string", "bool", _matches, _searched)
    function("matches", "string;string", "bool", _matches, _searched)
    method("find", "string;string", "string", _find, _searched)
    method("findAll", "string;string", "list<string>", _find_all, _searched)
    method("findAll", "string;string;int", "list<string>", _find_all, _searched)


def _product(text: str, part: str, *_: Any) -> int:
    return (len(text) // 10 + 1) * (len(part) // 10 + 1)


def _char_at(text: str, index: int) -> str:
    if 0 <= index < len(text):
        return text[index]
    if index == len(text):
        return ""
    raise EvalError(f"index out of range: {index}")


def _index_of(text: str, part: str, start: int = 0) -> int:
    if start < 0 or start > len(text):
        raise EvalError(f"index out of range: {start}")
    return text.find(part, start)


def _last_index_of(text: str, part: str, start: int | None = None) -> int:
    if start is None:
        return text.rfind(part)
    if start < 0 or start > len(text):
        raise EvalError(f"index out of range: {start}")
    return text.rfind(part, 0, start + len(part))


def _replace(budget: CostBudget, text: str, old: str, new: str, count: int = -1) -> str:
    budget.spend(traversal(text))
    if count == 0:
        return text
    times = text.count(old)
    if count > 0:
        times = min(times, count)
    budget.spend((len(text) + times * len(new)) // 10 + 1)
    return text.replace(old, new, times)


def _split(text: str, separator: str, limit: int = -1) -> list[str]:
    if limit == 0:
        return []
    if limit == 1:
        return [text]
    if separator == "":
        if limit < 0 or limit >= len(text):
            return list(text)
        return [*text[: limit - 1], text[limit - 1 :]]
    return text.split(separator, -1 if limit < 0 else limit - 1)


def _substring(text: str, start: int, end: int | None = None) -> str:
    last = len(text) if end is None else end
    if start < 0 or start > len(text):
        raise EvalError(f"index out of range: {start}")
    if last < 0 or last > len(text):
        raise EvalError(f"index out of range: {last}")
    if start > last:
        raise EvalError(f"invalid substring range. start: {start}, end: {last}")
    return text[start:last]


def _join(budget: CostBudget, parts: list[Any], separator: str = "") -> str:
    total = 0
    for part in parts:
        if not isinstance(part, str):
            raise EvalError("no such overload")
        total += len(part) + len(separator)
    budget.spend(total // 10 + 1)
    return separator.join(parts)


def _searched(text: str, pattern: str, *_: Any) -> int:
    return (len(text) // 10 + 1) * -(-len(pattern) // 4)


def _matches(text: str, pattern: str) -> bool:
    return compile_pattern(pattern).matches(text)


def _find(text: str, pattern: str) -> str:
    return next(compile_pattern(pattern).find_all(text), "")


def _find_all(text: str, pattern: str, limit: int = -1) -> list[str]:
    return list(islice(compile_pattern(pattern).find_all(text), limit if limit >= 0 else None))
