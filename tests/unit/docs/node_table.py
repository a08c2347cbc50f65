"""The table of docs/node.md: `python tests/unit/docs/node_table.py` writes it into the page."""

from __future__ import annotations

from pathlib import Path

from kueuelib.node.pod_fields import FIELDS, FieldRule

PAGE = Path(__file__).parents[3] / "docs" / "node.md"
START, END = "<!-- fields -->\n", "<!-- end of fields -->\n"
NO_VALUE = (None, False, "", (), [], {}, 0)


def row(message: str, name: str, rule: FieldRule) -> str:
    """One line of the table."""
    if rule.allowed is None:
        return f"| `{message}.{name}` | yes | {'' if rule.text == 'honoured' else rule.text} |\n"
    values = [each for each in rule.allowed if each not in NO_VALUE]
    shown = ", ".join(
        {"uid": "the user of the node", "gid": "its group"}.get(str(each), f"`{each}`")
        for each in values
    )
    return f"| `{message}.{name}` | {f'only {shown}' if shown else 'refused'} | {rule.text} |\n"


def table() -> str:
    """All fields that are not simply honoured, and how many are."""
    rows = [
        row(message, name, rule)
        for message, rules in FIELDS.items()
        for name, rule in rules.items()
        if rule.text != "honoured"
    ]
    count = sum(len(rules) for rules in FIELDS.values())
    whole = count - len(rows)
    head = f"The node honours {whole} of {count} fields without a remark. The others:\n\n"
    return head + "| Field | Honoured | |\n|---|---|---|\n" + "".join(rows)


def page(text: str) -> str:
    """The page with the present table."""
    before, _, rest = text.partition(START)
    _, _, after = rest.partition(END)
    return f"{before}{START}\n{table()}\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text("utf-8")), "utf-8")
