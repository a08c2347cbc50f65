"""Functions of texts: the standard ones, the extension of version 2, and regular expressions."""

from __future__ import annotations

import string
from typing import Any

from kueuelib.embedded.cel.budget import Budget, traversal
from kueuelib.embedded.cel.errors import EvalError
from kueuelib.embedded.cel.formatting import format_text
from kueuelib.embedded.cel.lexer import PLAIN
from kueuelib.embedded.cel.library import Library
from kueuelib.embedded.cel.regex import compile_pattern

_LOWER = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)
_UPPER = str.maketrans(string.ascii_lowercase, string.ascii_uppercase)
_SPACES = (
    "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009"
    "\u200a\u2028\u2029\u202f\u205f\u3000"
)
_QUOTED = str.maketrans(
    {'"': '\\"', "\\": "\\\\", **{value: f"\\{letter}" for letter, value in PLAIN.items()}}
)


def install(library: Library) -> None:
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
    method("matches", "string;string", "bool", _matches, budgeted=True)
    function("matches", "string;string", "bool", _matches, budgeted=True)
    method("find", "string;string", "string", _find, budgeted=True)
    method("findAll", "string;string", "list<string>", _find_all, budgeted=True)
    method("findAll", "string;string;int", "list<string>", _find_all, budgeted=True)


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


def _replace(budget: Budget, text: str, old: str, new: str, count: int = -1) -> str:
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


def _join(budget: Budget, parts: list[Any], separator: str = "") -> str:
    total = 0
    for part in parts:
        if not isinstance(part, str):
            raise EvalError("no such overload")
        total += len(part) + len(separator)
    budget.spend(total // 10 + 1)
    return separator.join(parts)


def _matches(budget: Budget, text: str, pattern: str) -> bool:
    budget.spend(traversal(pattern) * 10)
    return compile_pattern(pattern).matches(text, budget.spend)


def _find(budget: Budget, text: str, pattern: str) -> str:
    budget.spend(traversal(pattern) * 10)
    return next(compile_pattern(pattern).find_all(text, budget.spend), "")


def _find_all(budget: Budget, text: str, pattern: str, limit: int = -1) -> list[str]:
    budget.spend(traversal(pattern) * 10)
    matches: list[str] = []
    if limit == 0:
        return matches
    for each in compile_pattern(pattern).find_all(text, budget.spend):
        matches.append(each)
        if len(matches) == limit:
            break
    return matches
