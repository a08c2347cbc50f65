"""A page as a tree of parts that can change one by one.

Every part is one element with an id of its own. At most one element in it, also with an id,
contains other parts: rows of a table, tables of a section. So a change of one row is one short
message. The first element in a part may have a mark: a text that changes often, independently of
the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final
from urllib.parse import quote

import attrs

from kueuelib.api.meta import format_time
from kueuelib.api.phrases import counted, duration, some
from kueuelib.api.quantity import format_amount
from kueuelib.pages import templates
from kueuelib.scheduler.quota.amounts import FlavorResource
from kueuelib.scheduler.topology.tree import name_of, noun_of

MOST_DIGITS = 7
"""The longest amount that is not rounded; what members of a cohort lend has any value."""


@attrs.frozen
class PageElement:
    """One element.

    Attributes:
        id: of the element.
        head: its markup before the other parts.
        tail: the rest of its markup.
        container: the id of the element that contains the other parts; empty if there are none.
        parts: these parts, in their order.
        mark: the text between head and tail; the head ends in the first element of the part.
    """

    id: str
    head: str
    tail: str = ""
    container: str = ""
    parts: tuple[PageElement, ...] = ()
    mark: str = ""

    def text(self) -> str:
        """The markup with all other parts."""
        return "".join((self.head, self.mark, *(part.text() for part in self.parts), self.tail))


@attrs.frozen
class Shown:
    """The parts of a page, by id.

    Attributes:
        html: the markup of every part, without the parts inside it.
        order: the parts in every container; an outer container comes before inner ones.
        marks: the marks of the parts that have one.
    """

    html: Mapping[str, str]
    order: Mapping[str, tuple[str, ...]]
    marks: Mapping[str, str]


def shown(containers: Mapping[str, Iterable[PageElement]]) -> Shown:
    """The parts of a page in a form that can be compared.

    Args:
        containers: the outermost parts, by the id of the element that holds them.
    """
    html: dict[str, str] = {}
    order: dict[str, tuple[str, ...]] = {}
    marks: dict[str, str] = {}
    waiting = [(name, tuple(parts)) for name, parts in containers.items()]
    while waiting:
        name, parts = waiting.pop(0)
        order[name] = tuple(part.id for part in parts)
        for part in parts:
            html[part.id] = part.head + part.tail
            if part.mark:
                marks[part.id] = part.mark
            if part.container:
                waiting.append((part.container, part.parts))
    return Shown(html, order, marks)


@attrs.frozen
class PageChange:
    """The difference between one state of a page and the next.

    Attributes:
        html: the parts that are new or different.
        order: the containers whose parts, or their order, differ.
        marks: of parts that are new or different, or whose mark has changed.
    """

    html: Mapping[str, str]
    order: Mapping[str, tuple[str, ...]]
    marks: Mapping[str, str]

    def __bool__(self) -> bool:
        """Whether there is any difference."""
        return bool(self.html or self.order or self.marks)


def change(before: Shown, after: Shown) -> PageChange:
    """The difference between two states; a container that lost all its parts is empty in it."""
    html = {name: text for name, text in after.html.items() if before.html.get(name) != text}
    return PageChange(
        html,
        {name: ids for name, ids in after.order.items() if before.order.get(name) != ids},
        {
            name: mark
            for name, mark in after.marks.items()
            if name in html or before.marks.get(name) != mark
        },
    )


def identifier(kind: str, *names: str) -> str:
    """The id of an element for an object, safe for any characters in its name.

    Args:
        kind: what distinguishes it from elements for the same object.
        names: of the object.
    """
    return "/".join((kind, *(quote(name, safe="") for name in names)))


def drawn(macro: str, name: str, *values: object) -> PageElement:
    """A part from the templates; a mark goes into its first cell.

    Args:
        macro: which one.
        name: the id of the element.
        values: what it shows.
    """
    head, end, tail = markup(macro, name, *values).partition("</t")
    return PageElement(name, head, f"{end}{tail}")


def table(
    name: str, title: str, caption: str, rows: Sequence[PageElement], kind: str, text: str = ""
) -> PageElement:
    """A section with a title and a table that can be scrolled to the side.

    Args:
        name: the id of the section.
        title: for people.
        caption: the content of the table, for screen readers.
        rows: of the table.
        kind: the class of the section, which decides the columns.
        text: the text below the title.
    """
    head, end, tail = markup("table", name, title, caption, kind, text).partition("</tbody>")
    return PageElement(name, head, f"{end}{tail}", f"{name}/rows", tuple(rows))


def markup(macro: str, *values: object) -> str:
    """What a macro of the templates of parts makes of some values."""
    return str(getattr(TEMPLATES.get_template("parts.html").module, macro)(*values))


def amount(pair: FlavorResource, value: int) -> str:
    """An amount of a resource as in manifests, or rounded if that has too many digits."""
    exact = format_amount(pair.resource, value)
    if len(exact) <= MOST_DIGITS:
        return exact
    from kueuelib.simulator.figures import shown
    from kueuelib.simulator.report import readable

    return readable.amount(shown(pair.resource, value), pair.resource)


TEMPLATES: Final = templates(
    "kueuelib.cli.report",
    amount=amount,
    counted=counted,
    duration=duration,
    format_time=format_time,
    identifier=identifier,
    name_of=name_of,
    noun_of=noun_of,
    pair_of=FlavorResource,
    some=some,
)
