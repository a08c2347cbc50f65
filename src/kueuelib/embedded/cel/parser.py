"""Parses tokens to a tree (the grammar of the CEL specification, with optional syntax)."""

from __future__ import annotations

import re
from enum import Enum
from typing import Any

import attrs

from kueuelib.embedded.cel import ast
from kueuelib.embedded.cel.errors import CompileError, Issue
from kueuelib.embedded.cel.values import INT_MAX, UINT_MAX, Uint

# ---- splits text into tokens ---------------------------------------------------------------------

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


# --------------------------------------------------------------------------------------------------

DEEPEST = 48
"""The deepest nesting of parentheses, calls and conditions."""

RESERVED = frozenset(
    (
        *("as", "break", "const", "continue", "else", "for", "function", "if", "import", "let"),
        *("loop", "package", "namespace", "return", "var", "void", "while"),
    )
)
_BINARY = {
    "<": (1, "_<_"),
    "<=": (1, "_<=_"),
    ">": (1, "_>_"),
    ">=": (1, "_>=_"),
    "==": (1, "_==_"),
    "!=": (1, "_!=_"),
    "in": (1, "@in"),
    "+": (2, "_+_"),
    "-": (2, "_-_"),
    "*": (3, "_*_"),
    "/": (3, "_/_"),
    "%": (3, "_%_"),
}
_TESTS = ("all", "exists", "exists_one", "existsOne")
_TRANSFORMATIONS = ("transformList", "transformMap", "transformMapEntry")
_VARIABLES = {
    ("map", 2): 1,
    ("map", 3): 1,
    ("filter", 2): 1,
    **{(macro, count + 1): count for macro in _TESTS for count in (1, 2)},
    **{(macro, count): 2 for macro in _TRANSFORMATIONS for count in (3, 4)},
}
"""How many variables a macro with so many arguments has; a condition may follow, then the body."""


def parse(source: str) -> ast.Expr:
    """The tree of an expression.

    Raises:
        CompileError: the text is not an expression.
    """
    parser = _Parser(source)
    tree = parser.expression()
    parser.end()
    return tree


class _Parser:
    def __init__(self, source: str) -> None:
        self._source = source
        self._tokens = tokens_of(source)
        self._at = 0
        self._depth = 0

    # ---- tokens

    @property
    def _now(self) -> Token:
        return self._tokens[self._at]

    def _is(self, *values: str) -> bool:
        token = self._now
        return token.kind is TokenKind.OP and token.value in values

    def _take(self) -> Token:
        token = self._now
        if token.kind is not TokenKind.END:
            self._at += 1
        return token

    def _accept(self, value: str) -> bool:
        if self._is(value):
            self._at += 1
            return True
        return False

    def _expect(self, value: str) -> Token:
        if not self._is(value):
            raise self._unexpected(f"expecting '{value}'")
        return self._take()

    def _unexpected(self, more: str = "expecting an expression") -> CompileError:
        token = self._now
        shown = token.value if isinstance(token.value, str) else repr(token.value)
        text = f"Syntax error: mismatched input '{shown[:40]}' {more}"
        return self._wrong(token.position, text)

    def _wrong(self, position: int, text: str) -> CompileError:
        return CompileError(self._source, [Issue(position, text)])

    def end(self) -> None:
        """Check that nothing follows."""
        if self._now.kind is not TokenKind.END:
            raise self._unexpected("expecting <EOF>")

    # ---- expressions

    def expression(self) -> ast.Expr:
        """`a ? b : c`, and everything that binds tighter."""
        self._depth += 1
        if self._depth > DEEPEST:
            text = f"expression recursion limit exceeded: {DEEPEST}"
            raise self._wrong(self._now.position, text)
        test = self._either()
        if self._is("?"):
            position = self._take().position
            yes = self._either()
            self._expect(":")
            test = ast.CallExpr(position, "_?_:_", None, (test, yes, self.expression()))
        self._depth -= 1
        return test

    def _either(self) -> ast.Expr:
        args = [self._both()]
        position = self._now.position
        while self._accept("||"):
            args.append(self._both())
        return args[0] if len(args) == 1 else ast.Logic(position, "_||_", tuple(args))

    def _both(self) -> ast.Expr:
        args = [self._binary(1)]
        position = self._now.position
        while self._accept("&&"):
            args.append(self._binary(1))
        return args[0] if len(args) == 1 else ast.Logic(position, "_&&_", tuple(args))

    def _binary(self, level: int) -> ast.Expr:
        left = self._unary()
        while self._now.kind is TokenKind.OP and self._now.value in _BINARY:
            rank, name = _BINARY[self._now.value]
            if rank < level:
                break
            position = self._take().position
            left = ast.CallExpr(position, name, None, (left, self._binary(rank + 1)))
        return left

    def _unary(self) -> ast.Expr:
        marks: list[Token] = []
        while self._is("!", "-"):
            marks.append(self._take())
            if len(marks) > DEEPEST:
                text = f"expression recursion limit exceeded: {DEEPEST}"
                raise self._wrong(marks[-1].position, text)
        token = self._now
        if token.kind is TokenKind.CONST and type(token.value) in (int, float):
            if marks and marks[-1].value == "-":
                marks.pop()
                self._tokens[self._at] = Token(TokenKind.CONST, -token.value, token.position)
            elif type(token.value) is int and token.value > INT_MAX:
                raise self._wrong(token.position, "invalid int literal")
        node = self._member()
        for mark in reversed(marks):
            node = ast.CallExpr(mark.position, "!_" if mark.value == "!" else "-_", None, (node,))
        return node

    def _member(self) -> ast.Expr:
        node = self._primary()
        while True:
            position = self._now.position
            if self._accept("."):
                optional = self._accept("?")
                field = self._name()
                if self._is("(") and not optional:
                    opened = self._take().position
                    node = self._method(node, field, opened)
                else:
                    node = ast.Select(position, node, field, optional)
            elif self._accept("["):
                name = "_[?_]" if self._accept("?") else "_[_]"
                index = self.expression()
                self._expect("]")
                node = ast.CallExpr(position, name, None, (node, index))
            elif self._is("{") and isinstance(node, ast.Ident | ast.Select):
                raise self._wrong(position, "messages cannot be made here")
            else:
                return node

    def _name(self) -> str:
        token = self._take()
        if token.kind is TokenKind.IDENT:
            return str(token.value)
        self._at -= token.kind is not TokenKind.END
        raise self._unexpected("expecting IDENTIFIER")

    def _primary(self) -> ast.Expr:
        token = self._now
        if token.kind is TokenKind.CONST:
            self._take()
            return ast.Const(token.position, token.value)
        if self._accept("("):
            inner = self.expression()
            self._expect(")")
            return inner
        if self._accept("["):
            items, optional = self._items("]")
            return ast.ListLiteral(token.position, items, optional)
        if self._accept("{"):
            return self._map(token.position)
        self._accept(".")
        if self._now.kind is not TokenKind.IDENT:
            raise self._unexpected()
        name = self._name()
        if self._is("("):
            return self._function(name, self._take().position, token.position)
        if name in RESERVED:
            raise self._wrong(token.position, f"reserved identifier: {name}")
        return ast.Ident(token.position, name)

    # ---- lists of expressions

    def _items(self, closing: str) -> tuple[tuple[ast.Expr, ...], frozenset[int]]:
        items: list[ast.Expr] = []
        optional: set[int] = set()
        while not self._is(closing):
            if closing == "]" and self._accept("?"):
                optional.add(len(items))
            items.append(self.expression())
            if not self._accept(","):
                break
        self._expect(closing)
        return tuple(items), frozenset(optional)

    def _map(self, position: int) -> ast.Expr:
        entries: list[tuple[ast.Expr, ast.Expr]] = []
        optional: set[int] = set()
        while not self._is("}"):
            if self._accept("?"):
                optional.add(len(entries))
            key = self.expression()
            self._expect(":")
            entries.append((key, self.expression()))
            if not self._accept(","):
                break
        self._expect("}")
        return ast.MapLiteral(position, tuple(entries), frozenset(optional))

    # ---- calls and macros

    def _function(self, name: str, opened: int, position: int) -> ast.Expr:
        args, _ = self._items(")")
        if name != "has" or len(args) != 1:
            return ast.CallExpr(opened, name, None, args)
        (arg,) = args
        if not isinstance(arg, ast.Select) or arg.test or arg.optional:
            raise self._wrong(position, "invalid argument to has() macro")
        return ast.Select(arg.position, arg.operand, arg.field, test=True)

    def _method(self, target: ast.Expr, name: str, opened: int) -> ast.Expr:
        args, _ = self._items(")")
        count = len(args)
        if own := _VARIABLES.get((name, count)):
            macro = "exists_one" if name == "existsOne" else name
            condition = args[own] if count == own + 2 else None
            names = self._variables(args[:own], macro)
            return ast.Loop(opened, macro, target, names, condition, args[-1])
        if name in ("optMap", "optFlatMap") and count == 2:
            (variable,) = self._variables(args[:1], name)
            return ast.WithValue(opened, target, variable, args[1], flat=name == "optFlatMap")
        return ast.CallExpr(opened, name, target, args)

    def _variables(self, nodes: tuple[ast.Expr, ...], macro: str) -> tuple[str, ...]:
        names: list[str] = []
        for node in nodes:
            if not isinstance(node, ast.Ident):
                raise self._wrong(node.position, "argument must be a simple name")
            if node.name in names:
                text = f"duplicate variable name in {macro}: {node.name}"
                raise self._wrong(node.position, text)
            names.append(node.name)
        return tuple(names)
