"""Splits text into tokens."""

from __future__ import annotations

import re
from enum import Enum
from typing import Any

import attrs

from kueuelib.embedded.cel.errors import CompileError, Issue
from kueuelib.embedded.cel.values import INT_MAX, UINT_MAX, Uint

LONGEST = 100_000
"""The maximum number of characters in an expression."""


class TokenKind(Enum):
    """The kind of a token."""

    CONST = "constant"
    IDENT = "identifier"
    OP = "operator"
    END = "end"


@attrs.frozen
class Token:
    """One token; `value` of a constant is its value, otherwise the text."""

    kind: TokenKind
    value: Any
    position: int


_TOKEN = re.compile(
    r"""
    (?P<space>[ \t\r\n\f]+|//[^\n]*)
    | (?P<text>(?:[rR][bB]?|[bB][rR]?)?(?:\"\"\"|'''|"|'))
    | (?P<float>[0-9]+\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+
        |\.[0-9]+(?:[eE][+-]?[0-9]+)?)
    | (?P<int>(?:0x[0-9a-fA-F]+|[0-9]+)[uU]?)
    | (?P<ident>[A-Za-z_][A-Za-z0-9_]*)
    | (?P<op>==|!=|<=|>=|&&|\|\||[-+*/%<>!?:.,()\[\]{}])
    """,
    re.VERBOSE | re.ASCII,
)
_ESCAPE = re.compile(
    r"""\\(?:(?P<plain>[abfnrtv\\?"'`])|[xX](?P<x>[0-9a-fA-F]{2})|u(?P<u>[0-9a-fA-F]{4})
    |U(?P<U>[0-9a-fA-F]{8})|(?P<o>[0-3][0-7]{2})|(?P<bad>(?s:.)|\Z))""",
    re.VERBOSE,
)
PLAIN = dict(zip("abfnrtv", "\a\b\f\n\r\t\v", strict=True))
"""The meaning of letters after a backslash."""
_WORDS: dict[str, Any] = {"true": True, "false": False, "null": None}


def tokens_of(source: str) -> list[Token]:
    """The tokens of an expression; the last one is `END`.

    Raises:
        CompileError: a character or a literal is not valid.
    """
    if len(source) > LONGEST:
        text = f"expression code point size exceeds limit: size: {len(source)}, limit {LONGEST}"
        raise CompileError("", [Issue(0, text)])
    tokens: list[Token] = []
    position = 0
    while position < len(source):
        match = _TOKEN.match(source, position)
        if match is None:
            raise _wrong(source, position, f"token recognition error at: '{source[position]}'")
        start, position = position, match.end()
        if match["text"] is not None:
            value, position = _literal(source, start, match["text"])
            tokens.append(Token(TokenKind.CONST, value, start))
        elif match["float"] is not None:
            tokens.append(Token(TokenKind.CONST, float(match["float"]), start))
        elif match["int"] is not None:
            tokens.append(Token(TokenKind.CONST, _integer(source, start, match["int"]), start))
        elif match["ident"] is not None:
            name = match["ident"]
            if name in _WORDS:
                tokens.append(Token(TokenKind.CONST, _WORDS[name], start))
            else:
                tokens.append(Token(TokenKind.OP if name == "in" else TokenKind.IDENT, name, start))
        elif match["op"] is not None:
            tokens.append(Token(TokenKind.OP, match["op"], start))
    tokens.append(Token(TokenKind.END, "<EOF>", len(source)))
    return tokens


def _wrong(source: str, position: int, message: str) -> CompileError:
    return CompileError(source, [Issue(position, f"Syntax error: {message}")])


def _integer(source: str, start: int, text: str) -> int:
    unsigned = text[-1] in "uU"
    digits = text[:-1] if unsigned else text
    limit = UINT_MAX if unsigned else INT_MAX + 1  # one more: the parser may negate it
    base = 16 if digits.startswith("0x") else 10
    value = int(digits, base) if len(digits) <= 40 else limit + 1
    if value > limit:
        raise CompileError(
            source, [Issue(start, f"invalid {'uint' if unsigned else 'int'} literal")]
        )
    return Uint(value) if unsigned else value


def _literal(source: str, start: int, opening: str) -> tuple[str | bytes, int]:
    quote = opening.lstrip("rRbB")
    prefix = opening[: -len(quote)].lower()
    begin = start + len(opening)
    position = begin
    while True:
        if position >= len(source) or (len(quote) == 1 and source[position] in "\r\n"):
            raise _wrong(source, start, f"token recognition error at: '{source[start:][:20]}'")
        if source.startswith(quote, position):
            break
        position += 2 if source[position] == "\\" and "r" not in prefix else 1
    body, end = source[begin:position], position + len(quote)
    binary = "b" in prefix
    if "r" in prefix:
        return (body.encode() if binary else body), end
    return (_bytes(source, start, body) if binary else _text(source, start, body)), end


def _text(source: str, start: int, body: str) -> str:
    def plain(match: re.Match[str]) -> str:
        if match["plain"] is not None:
            return PLAIN.get(match["plain"], match["plain"])
        code = match["x"] or match["u"] or match["U"]
        if code is None and match["o"] is None:
            raise CompileError(source, [Issue(start, "invalid string literal: unable to unescape")])
        number = int(code, 16) if code is not None else int(match["o"], 8)
        if number > 0x10FFFF or 0xD800 <= number <= 0xDFFF:
            raise CompileError(source, [Issue(start, "invalid unicode code point")])
        return chr(number)

    return _ESCAPE.sub(plain, body)


def _bytes(source: str, start: int, body: str) -> bytes:
    parts: list[bytes] = []
    position = 0
    for match in _ESCAPE.finditer(body):
        parts.append(body[position : match.start()].encode())
        position = match.end()
        if match["plain"] is not None:
            parts.append(PLAIN.get(match["plain"], match["plain"]).encode())
        elif match["x"] is not None:
            parts.append(bytes([int(match["x"], 16)]))
        elif match["o"] is not None:
            parts.append(bytes([int(match["o"], 8)]))
        else:
            raise CompileError(source, [Issue(start, "invalid bytes literal: unable to unescape")])
    parts.append(body[position:].encode())
    return b"".join(parts)
