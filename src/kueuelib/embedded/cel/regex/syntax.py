"""From the text of a pattern to a tree (the syntax of RE2)."""

from __future__ import annotations

from enum import Enum

import attrs

from kueuelib.embedded.cel.errors import CelError
from kueuelib.embedded.cel.regex.classes import (
    CATEGORIES,
    LAST,
    PERL,
    POSIX,
    CharSet,
    Range,
    complement,
)

DEEPEST = 60
MOST_REPEATS = 1000


class BadPattern(CelError):
    """The text is not a pattern."""

    def __init__(self, problem: str, part: str) -> None:
        super().__init__(f"error parsing regexp: {problem}: `{part}`")


class Edge(Enum):
    """What is between two characters."""

    TEXT_BEGIN = "\\A"
    TEXT_END = "\\z"
    LINE_BEGIN = "^"
    LINE_END = "$"
    WORD = "\\b"
    INSIDE = "\\B"


@attrs.frozen
class One:
    """One character of a set."""

    chars: CharSet


@attrs.frozen
class At:
    """An edge."""

    edge: Edge


@attrs.frozen
class Chain:
    """One after the other; empty matches the empty text."""

    parts: tuple[Tree, ...]


@attrs.frozen
class Choice:
    """One of them, the first ones preferred."""

    parts: tuple[Tree, ...]


@attrs.frozen
class Repeat:
    """Again and again; `most` None is without end."""

    part: Tree
    least: int
    most: int | None
    greedy: bool


Tree = One | At | Chain | Choice | Repeat

_CONTROL = {"a": 7, "f": 12, "t": 9, "n": 10, "r": 13, "v": 11}
_EDGES = {"A": Edge.TEXT_BEGIN, "z": Edge.TEXT_END, "b": Edge.WORD, "B": Edge.INSIDE}
_DOT = CharSet(((0, 9), (11, LAST)))
_EVERY = CharSet(((0, LAST),))


def parse(pattern: str) -> Tree:
    """The tree of a pattern.

    Raises:
        BadPattern: it is none.
    """
    parser = _Parser(pattern)
    found = parser.choice()
    if parser.more():
        raise BadPattern("unexpected )", pattern)
    return found


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0
        self._flags = frozenset[str]()

    def more(self) -> bool:
        return self._at < len(self._text)

    def _accept(self, part: str) -> bool:
        if self._text.startswith(part, self._at):
            self._at += len(part)
            return True
        return False

    def _next(self) -> str:
        letter = self._text[self._at]
        self._at += 1
        return letter

    # ---- structure

    def choice(self) -> Tree:
        self._depth += 1
        if self._depth > DEEPEST:
            raise BadPattern("expression nests too deeply", self._text[:100])
        parts = [self._chain()]
        while self._accept("|"):
            parts.append(self._chain())
        self._depth -= 1
        return parts[0] if len(parts) == 1 else Choice(tuple(parts))

    def _chain(self) -> Tree:
        parts: list[Tree] = []
        while self.more() and self._text[self._at] not in "|)":
            start = self._at
            atom = self._atom()
            if atom is None:
                continue
            parts.append(self._repeated(atom, start))
        return parts[0] if len(parts) == 1 else Chain(tuple(parts))

    def _repeated(self, atom: Tree, start: int) -> Tree:
        seen = False
        while self.more():
            begin = self._at
            bounds = self._bounds()
            if bounds is None:
                break
            least, most = bounds
            if seen:
                raise BadPattern("invalid nested repetition operator", self._text[start : self._at])
            seen = True
            lazy = self._accept("?")
            greedy = lazy is ("U" in self._flags)
            if max(least, most or 0) > MOST_REPEATS or (most is not None and most < least):
                raise BadPattern("invalid repeat count", self._text[begin : self._at])
            atom = Repeat(atom, least, most, greedy)
        return atom

    def _bounds(self) -> tuple[int, int | None] | None:
        if self._accept("*"):
            return 0, None
        if self._accept("+"):
            return 1, None
        if self._accept("?"):
            return 0, 1
        if not self._text.startswith("{", self._at):
            return None
        end = self._text.find("}", self._at)
        body = self._text[self._at + 1 : end] if end >= 0 else ""
        low, comma, high = body.partition(",")
        if not _is_number(low) or (high and not _is_number(high)):
            return None  # a brace that counts nothing is itself
        self._at = end + 1
        least = int(low)
        return least, (int(high) if high else None) if comma else least

    def _atom(self) -> Tree | None:
        letter = self._next()
        if letter == "(":
            return self._group()
        if letter == "[":
            return One(self._set())
        if letter == ".":
            return One(_EVERY if "s" in self._flags else _DOT)
        if letter == "^":
            return At(Edge.LINE_BEGIN if "m" in self._flags else Edge.TEXT_BEGIN)
        if letter == "$":
            return At(Edge.LINE_END if "m" in self._flags else Edge.TEXT_END)
        if letter in "*+?":
            raise BadPattern("missing argument to repetition operator", letter)
        if letter == "\\":
            return self._escaped()
        return self._single(ord(letter))

    def _single(self, code: int) -> Tree:
        return One(CharSet(((code, code),), fold="i" in self._flags))

    def _group(self) -> Tree | None:
        before = self._flags
        if self._accept("?"):
            if self._accept("P<") or self._accept("<"):
                start = self._at
                end = self._text.find(">", start)
                name = self._text[start:end]
                if end < 0 or not name.isidentifier():
                    raise BadPattern("invalid named capture", self._text[start - 3 :][:40])
                self._at = end + 1
            elif self._set_flags():
                return None
        inner = self.choice()
        if not self._accept(")"):
            raise BadPattern("missing closing )", self._text)
        self._flags = before
        return inner

    def _set_flags(self) -> bool:
        """Reads `i-s:` or `i)`; whether the group ends there."""
        start = self._at
        flags, negative = set(self._flags), False
        while self.more():
            letter = self._next()
            if letter == "-" and not negative:
                negative = True
            elif letter in "imsU":
                (flags.discard if negative else flags.add)(letter)
            elif letter in ":)":
                self._flags = frozenset(flags)
                return letter == ")"
            else:
                break
        raise BadPattern("invalid or unsupported Perl syntax", self._text[start - 2 : self._at])

    # ---- characters

    def _escaped(self) -> Tree:
        if not self.more():
            raise BadPattern("trailing backslash at end of expression", "")
        letter = self._next()
        if letter in _EDGES:
            return At(_EDGES[letter])
        if letter == "Q":
            end = self._text.find("\\E", self._at)
            body = self._text[self._at : end if end >= 0 else len(self._text)]
            self._at += len(body) + (2 if end >= 0 else 0)
            return Chain(tuple(self._single(ord(each)) for each in body))
        self._at -= 1
        found = self._class()
        if found is not None:
            ranges, categories = found
            return One(CharSet(ranges, categories, fold="i" in self._flags))
        return self._single(self._code())

    def _class(self) -> tuple[tuple[Range, ...], tuple[tuple[str, bool], ...]] | None:
        """`d`, `W`, `pL`, `P{Lu}` after a backslash."""
        letter = self._text[self._at]
        if letter.lower() in PERL:
            self._at += 1
            ranges = PERL[letter.lower()]
            return (ranges if letter.islower() else complement(ranges)), ()
        if letter not in "pP":
            return None
        start = self._at - 1
        self._at += 1
        if self._accept("{"):
            end = self._text.find("}", self._at)
            name = self._text[self._at : end]
            self._at = end + 1 if end >= 0 else len(self._text)
        else:
            name = self._next() if self.more() else ""
        excluded = letter == "P"
        if name.startswith("^"):
            name, excluded = name[1:], not excluded
        if name not in CATEGORIES:
            raise BadPattern("invalid character class range", self._text[start : self._at])
        return (), ((name, excluded),)

    def _code(self) -> int:
        """The character that an escape stands for."""
        start = self._at - 1
        letter = self._next()
        if letter in _CONTROL:
            return _CONTROL[letter]
        if letter == "x":
            if self._accept("{"):
                end = self._text.find("}", self._at)
                digits = self._text[self._at : end]
                self._at = end + 1 if end >= 0 else len(self._text)
            else:
                digits = self._text[self._at : self._at + 2]
                self._at += 2
            if 0 < len(digits) <= 8 and all(each in "0123456789abcdefABCDEF" for each in digits):
                code = int(digits, 16)
                if code <= LAST:
                    return code
        elif letter in "01234567":
            digits = letter
            while len(digits) < 3 and self.more() and self._text[self._at] in "01234567":
                digits += self._next()
            if letter == "0" or len(digits) == 3:
                return int(digits, 8)
        elif letter.isascii() and not letter.isalnum():
            return ord(letter)
        raise BadPattern("invalid escape sequence", self._text[start : self._at])

    def _set(self) -> CharSet:
        start = self._at - 1
        negated = self._accept("^")
        ranges: list[Range] = []
        categories: list[tuple[str, bool]] = []
        first = True
        while True:
            if not self.more():
                raise BadPattern("missing closing ]", self._text[start:])
            if self._accept("]") and not first:
                break
            if first and self._text[self._at - 1] == "]" and self._at - 1 > start:
                self._at -= 1
            first = False
            named = self._named_class() or (self._class_in_set())
            if named is not None:
                ranges.extend(named[0])
                categories.extend(named[1])
                continue
            low = self._member()
            high = low
            if self._text.startswith("-", self._at) and not self._text.startswith("-]", self._at):
                begin = self._at
                self._at += 1
                if not self.more():
                    raise BadPattern("missing closing ]", self._text[start:])
                high = self._member()
                if high < low:
                    raise BadPattern(
                        "invalid character class range", self._text[begin - 1 : self._at]
                    )
            ranges.append((low, high))
        return CharSet(tuple(ranges), tuple(categories), negated, "i" in self._flags)

    def _named_class(self) -> tuple[tuple[Range, ...], tuple[tuple[str, bool], ...]] | None:
        if not self._text.startswith("[:", self._at):
            return None
        end = self._text.find(":]", self._at + 2)
        if end < 0:
            return None
        name = self._text[self._at + 2 : end]
        negative = name.startswith("^")
        ranges = POSIX.get(name.removeprefix("^"))
        if ranges is None:
            raise BadPattern("invalid character class range", self._text[self._at : end + 2])
        self._at = end + 2
        return (complement(ranges) if negative else ranges), ()

    def _class_in_set(self) -> tuple[tuple[Range, ...], tuple[tuple[str, bool], ...]] | None:
        if not self._text.startswith("\\", self._at) or self._at + 1 >= len(self._text):
            return None
        self._at += 1
        found = self._class()
        if found is None:
            self._at -= 1
        return found

    def _member(self) -> int:
        letter = self._next()
        if letter != "\\":
            return ord(letter)
        if not self.more():
            raise BadPattern("trailing backslash at end of expression", "")
        return self._code()


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 5
