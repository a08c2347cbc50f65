"""The table of docs/feature-gates.md: `python tests/unit/docs/gate_table.py > FILE`."""

from __future__ import annotations

import sys
from pathlib import Path

from kueuelib.app.feature_gates import (
    CONFIGURED,
    EITHER,
    FAST_GROUP_RELEASE,
    FREE,
    KNOWN,
    NO_SWITCH,
    OFF,
    ON,
)

PAGE = Path(__file__).parents[3] / "docs" / "feature-gates.md"
HEAD = """# Feature gates

`featureGates` of the [configuration](configuration.md) takes the gates of today's Kueue. A value is
accepted if it says what happens anyway. Any other value is an error at the start that names the
gate. This page is generated.

| Gate | Accepted | |
| --- | --- | --- |
"""


def row(name: str) -> tuple[str, str]:
    """The values of a gate that are accepted, and why."""
    if name in FREE:
        default = "false" if name == FAST_GROUP_RELEASE else "true"
        return "`true`, `false`", f"honoured; `{default}` unless it is set"
    if name in ON:
        return "`true`", "always on"
    if name in OFF:
        return "`false`", OFF[name]
    if name in EITHER:
        return "`true`, `false`", "no difference"
    if name in CONFIGURED:
        return "as configured", f"`{CONFIGURED[name][1]}` decides"
    assert name in NO_SWITCH
    return "neither", "no switch"


def page() -> str:
    """The whole page."""
    rows = ((name, *row(name)) for name in sorted(KNOWN))
    return HEAD + "".join(f"| `{name}` | {values} | {why} |\n" for name, values, why in rows)


if __name__ == "__main__":
    sys.stdout.write(page())
