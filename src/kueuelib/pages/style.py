"""The style of pages: light or dark like the reader's system, and for paper."""

from __future__ import annotations

from collections.abc import Mapping

_LIGHT = {
    "back": "#ffffff",
    "card": "#f6f7f9",
    "text": "#1b1f24",
    "soft": "#57606a",
    "rule": "#d8dee4",
    "own": "#4c8ed9",
    "lent": "#e8833a",
}
_DARK = {
    "back": "#14171c",
    "card": "#1d2129",
    "text": "#e6e9ee",
    "soft": "#a2abb8",
    "rule": "#363d49",
    "own": "#3f7fca",
    "lent": "#d97a33",
}

RULES = """
*{box-sizing:border-box}
body{margin:0;background:var(--back);color:var(--text);font:15px/1.5 system-ui,sans-serif}
h1{font-size:26px;line-height:1.25;margin:0 0 4px;overflow-wrap:anywhere}
h2{font-size:19px;margin:44px 0 4px;padding-top:14px;border-top:1px solid var(--rule)}
h3{font-size:15px;margin:18px 0 4px}
h4{font-size:13px;margin:8px 0 2px;color:var(--soft);font-weight:600}
p{margin:4px 0;max-width:76ch;overflow-wrap:anywhere}
nav{display:flex;flex-wrap:wrap;gap:0 14px}
nav a{color:inherit}
.wide{overflow-x:auto;margin:8px 0}
table{border-collapse:collapse;font-size:13px;font-variant-numeric:tabular-nums}
caption{text-align:left;color:var(--soft);padding:2px 0 4px;white-space:nowrap}
th,td{padding:3px 10px 3px 0;text-align:right;vertical-align:top;
 border-bottom:1px solid var(--rule)}
td{white-space:nowrap}
th{font-weight:600}
.text{text-align:left}
details{margin:6px 0}
summary{cursor:pointer;color:var(--soft);font-size:13px}
@page{margin:12mm}
@media print{
body{max-width:none;padding:0;font-size:12px}
nav{display:none}
.wide{overflow:visible}
table{width:100%;font-size:10px}
table :is(div,span,summary){font-size:inherit}
th,td{white-space:normal;padding-right:5px}
.text{overflow-wrap:anywhere;min-width:10ch}
p{break-inside:avoid}
thead th{overflow-wrap:normal}
tr{break-inside:avoid}
h2,h3,h4,thead{break-after:avoid}
}
"""
"""Text and tables. Paper cannot be scrolled to the side, so texts in tables wrap there."""


def colours(light: Mapping[str, str], dark: Mapping[str, str]) -> str:
    """The colours of all pages and those of one page, as variables named `--<name>`.

    Args:
        light: the colours of the page, by name.
        dark: the same names for dark mode.
    """
    bright, dim = _scheme({**_LIGHT, **light}, "light"), _scheme({**_DARK, **dark}, "dark")
    return f"{bright}@media (prefers-color-scheme:dark){{{dim}}}@media print{{{bright}}}"


def _scheme(variables: Mapping[str, str], scheme: str) -> str:
    parts = "".join(f"--{name}:{value};" for name, value in variables.items())
    return f":root{{color-scheme:{scheme};{parts}}}"
