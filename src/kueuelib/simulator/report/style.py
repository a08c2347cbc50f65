"""The style of the report, in addition to that of all pages."""

from __future__ import annotations

from kueuelib.pages.style import RULES, colours

_LIGHT = {
    "p0": "#0b62c4",
    "p1": "#c2410c",
    "p2": "#15803d",
    "p3": "#7e22ce",
    "p4": "#946200",
    "p5": "#0e7490",
    "p6": "#be185d",
    "p7": "#4b5563",
}
_DARK = {
    "p0": "#6cb0ff",
    "p1": "#ff9a5c",
    "p2": "#5fd38a",
    "p3": "#c79bff",
    "p4": "#e3b341",
    "p5": "#4fd1e0",
    "p6": "#ff85b8",
    "p7": "#b6bfcc",
}
KINDS = 8
"""The number of runs with different styles."""
_DASHES = ("none", "7 3", "2 3", "9 3 2 3", "4 4", "12 4", "1 4", "6 2 2 2")

_RULES = """
main{max-width:1000px;margin:0 auto;padding:24px 20px 64px}
.verdict{font-size:17px}
.soft,figure p,nav{color:var(--soft);font-size:13px}
figure{margin:8px 0 20px}
svg[role=img]{display:block;width:100%;height:auto;max-width:960px}
svg text{font:12px system-ui,sans-serif;fill:var(--soft)}
.panels{display:grid;
 grid-template-columns:repeat(auto-fit,minmax(min(100%,440px),1fr));gap:6px 20px}
.grid{stroke:var(--rule);stroke-width:1}
.axis,.tick{stroke:var(--soft);stroke-width:1}
.line{fill:none;stroke-width:1.8;stroke:var(--p0)}
.nominal{fill:none;stroke:var(--text);stroke-width:1.3;stroke-dasharray:5 4}
.own{fill:var(--own)}
.borrowed{fill:var(--lent)}
.waits{fill:var(--lent)}
.runs{fill:var(--own)}
.legend{list-style:none;display:flex;flex-wrap:wrap;gap:2px 18px;padding:0;
 margin:6px 0;font-size:13px}
.legend svg{vertical-align:-1px;margin-right:6px}
.heat td{min-width:44px;padding:3px 8px;text-align:center;
 background:color-mix(in srgb,var(--lent) var(--part,0%),transparent)}
"""

_PRINT = """
main{max-width:none;padding:0}
summary{display:none}
figure{break-inside:avoid}
.soft,.legend{break-after:avoid}
.panels{grid-template-columns:1fr 1fr}
.panels:has(.heat){grid-template-columns:minmax(0,1fr)}
.heat{width:auto}
.heat thead th:not(.text){writing-mode:vertical-rl;vertical-align:bottom;text-align:left}
.heat td{min-width:0;padding:2px;print-color-adjust:exact}
"""


def style() -> str:
    """The style sheet. It has no `<`, `>` and `&`, so that the page can be read as XML."""
    runs = "".join(
        f".p{at}{{stroke:var(--p{at});stroke-dasharray:{_DASHES[at]}}}"
        f".nominal.p{at}{{stroke-width:1;stroke-dasharray:1 3}}"
        for at in range(KINDS)
    )
    return f"{colours(_LIGHT, _DARK)}{RULES}{_RULES}{runs}@media print{{{_PRINT}}}"
