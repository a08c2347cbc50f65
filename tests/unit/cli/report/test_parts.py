"""Pages as trees of parts: what is different is found, and nothing else is sent."""

from __future__ import annotations

from kueuelib.cli.report.parts import PageChange, PageElement, change, identifier, shown, table


def row(name: str, text: str) -> PageElement:
    return PageElement(name, f'<tr id="{name}"><td>{text}</td></tr>')


def page(*sections: tuple[str, list[PageElement]]) -> dict[str, list[PageElement]]:
    return {
        "main": [table(name, name, "c", parts, "quotas") for name, parts in sections],
        "notes": [],
    }


BEFORE = shown(page(("s", [row("a", "1"), row("b", "2")]), ("t", [row("c", "3")])))


def test_what_stays_is_no_change() -> None:
    again = shown(page(("s", [row("a", "1"), row("b", "2")]), ("t", [row("c", "3")])))
    assert change(BEFORE, again) == PageChange({}, {}, {})
    assert not change(BEFORE, again)


def test_a_row_that_changes_is_sent_alone() -> None:
    after = shown(page(("s", [row("a", "1"), row("b", "9")]), ("t", [row("c", "3")])))
    assert change(BEFORE, after) == PageChange({"b": '<tr id="b"><td>9</td></tr>'}, {}, {})


def test_a_row_that_moves_or_goes_is_an_order() -> None:
    after = shown(page(("s", [row("b", "2"), row("a", "1")]), ("t", [])))
    assert change(BEFORE, after) == PageChange({}, {"s/rows": ("b", "a"), "t/rows": ()}, {})


def test_a_new_section_comes_with_its_rows_and_before_them() -> None:
    after = shown(page(("s", [row("a", "1"), row("b", "2")]), ("u", [row("d", "4")])))
    found = change(BEFORE, after)
    assert set(found.html) == {"u", "d"}
    assert list(found.order.items()) == [("main", ("s", "u")), ("u/rows", ("d",))]


def test_the_whole_text_has_the_rows_in_their_place() -> None:
    (section,) = page(("s", [row("a", "1"), row("b", "2")]))["main"]
    rows = (
        '<tbody id="s/rows" role="rowgroup"><tr id="a"><td>1</td></tr>'
        '<tr id="b"><td>2</td></tr></tbody>'
    )
    assert rows in section.text()
    assert section.head + section.tail == section.text().replace(
        rows, '<tbody id="s/rows" role="rowgroup"></tbody>'
    )


def test_identifiers_of_different_objects_differ() -> None:
    assert identifier("x", "a/b", "c") != identifier("x", "a", "b/c")
    assert identifier("x", '"> <b>') == "x/%22%3E%20%3Cb%3E"
