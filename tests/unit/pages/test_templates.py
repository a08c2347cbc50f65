"""Templates of pages: names are text, line breaks are not, and mistakes are errors."""

from __future__ import annotations

import traceback

import jinja2
import pytest

from kueuelib.pages import templates

ALL = templates("kueuelib.simulator.report", shout=str.upper)


def rendered(text: str, **names: object) -> str:
    return ALL.from_string(text).render(names)


def test_text_is_escaped_and_markup_is_not() -> None:
    hostile = '<script src="x">&amp;\''
    escaped = "&lt;script src=&#34;x&#34;&gt;&amp;amp;&#39;"
    text = '{% macro bold(it) %}<b>{{ it }}</b>{% endmacro %}<p title="{{ it }}">{{ bold(it) }}</p>'
    assert rendered(text, it=hostile) == f'<p title="{escaped}"><b>{escaped}</b></p>'


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("<p>\n  <b>a</b>\n</p>\n", "<p><b>a</b></p>"),
        ("<p>\n  a\n  b\n</p>", "<p>a b</p>"),
        ("{% if x %}\n  <p>\n    {{ x }}\n  </p>\n{% endif %}\n", "<p> \n </p>"),
        ("<a\n  b>{{ 'c' }} {{ 'd' }} e</a>", "<a b>c d e</a>"),
        ("{{ shout('a') }}{{ ' ' }}\nb", "A b"),
    ],
)
def test_line_breaks_beside_markup_are_no_text(text: str, shown: str) -> None:
    assert rendered(text, x=" \n ") == shown


def test_fractions_have_at_most_two_decimals() -> None:
    numbers = {1.0: "1", 2.5: "2.5", 1 / 3: "0.33", -0.001: "0", 0.0: "0", 1e6: "1000000"}
    for value, text in numbers.items():
        assert rendered("{{ value }}", value=value) == text


def test_a_name_that_is_not_known_is_an_error_with_its_line() -> None:
    with pytest.raises(jinja2.UndefinedError, match="'absent' is undefined") as found:
        rendered("<p>\n  a\n</p>\n{{ absent }}")
    lines = [one.lineno for one in traceback.extract_tb(found.tb) if one.filename == "<template>"]
    assert lines[-1] == 4
