"""HTML pages that need nothing else: templates, tables and how they look. Pure.

Templates are in Jinja2: names are escaped, and what is not known is an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from importlib.resources import files

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from jinja2.ext import Extension
from jinja2.lexer import Token, TokenStream

_SHARED = "kueuelib.pages"
_AT_MARKUP = re.compile(r"(?:^|(?<=>))\s*\n\s*|\s*\n\s*(?=<|$)")
_IN_TEXT = re.compile(r"\s*\n\s*")


class _Lines(Extension):
    """Drops the line breaks and indentation beside markup; those within a text are one space."""

    def filter_stream(self, stream: TokenStream) -> Iterable[Token]:
        """The same tokens, with shorter text."""
        for token in stream:
            if token.type != "data":
                yield token
            elif text := _IN_TEXT.sub(" ", _AT_MARKUP.sub("", token.value)):
                yield Token(token.lineno, "data", text)


def templates(package: str, **names: object) -> Environment:
    """The templates of a package, which can use those of all pages.

    Args:
        package: with a folder `templates`.
        names: functions and values for all of them.
    """
    loader = ChoiceLoader([PackageLoader(one) for one in (package, _SHARED)])
    environment = Environment(
        loader=loader,
        autoescape=True,
        undefined=StrictUndefined,
        auto_reload=False,
        finalize=lambda value: number(value) if isinstance(value, float) else value,
        extensions=[_Lines],
    )
    environment.globals.update(names)
    return environment


def style(package: str, name: str) -> str:
    """The style of all pages and that of one, from a file of its package."""
    return resource(_SHARED, "style.css") + resource(package, name)


def resource(package: str, name: str) -> str:
    """The text of a file in a package."""
    return files(package).joinpath(name).read_text("utf-8")


def number(value: float) -> str:
    """A number for an attribute: at most two decimals, no useless zeros."""
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text in ("-0", "") else text
