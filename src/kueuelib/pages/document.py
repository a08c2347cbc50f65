"""A page as one file."""

from __future__ import annotations

from kueuelib.pages.markup import Markup, tag


def document(title: str, body: Markup, *, style: str, policy: str) -> str:
    """The page as HTML.

    Args:
        title: of the window.
        body: the element.
        style: CSS.
        policy: the Content-Security-Policy of the page.
    """
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("title", title),
        tag("style", Markup(style)),
    )
    return f"<!DOCTYPE html>\n{tag('html', head, body, lang='en')}\n"
