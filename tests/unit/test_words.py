"""Prose reads as docs/style.md says: none of the forms that send a reader back to the start."""

from __future__ import annotations

import io
import re
import tokenize
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    [
        *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")),
        *(ROOT / "changelog.d").glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "examples").rglob("*.md"),
    ]
)
CODE = sorted(path for folder in ("examples", "src") for path in (ROOT / folder).rglob("*.py"))
STYLE = ROOT / "docs" / "style.md"
"""Shows the forms, so it is not searched."""

_BEGIN = r"(?:^|(?<=[.:;|] ))"
_PEOPLE = "".join(
    rf"(?<!\b{word} )"
    for word in ("user", "users", "people", "person", "somebody", "anybody", "everybody", "else")
)
_NOT = r"\b(?:not?|nothing|nobody|none|never|neither|n't)\b"
_DONE = "has|have|had|is|are|was|were|gets?|got|waits?|runs?|holds?|needs?|uses?|preempts?|borrows?"
FORMS = {
    r"(?<!there )\b(?:is|are|was|were) no\b(?! longer| more| less| later)": "use not",
    r"\bbe it\b": "for example",
    r"\btold\b(?!:)": "a message says, an event reports, the engine is given",
    rf"{_NOT}[^.;:]{{0,60}}\bany ?more\b|\bany more\b(?! \w)": "no longer, nothing",
    r"\btells?\b(?! apart|:)|\btelling\b": "a clock stamps, a message says, a function returns",
    r"\bwhom\b|\bwhoever\b": "objects are it or that",
    rf"{_PEOPLE}\bwho (?:{_DONE})\b": "objects are it or that",
    r"\bfor ever\b": "forever, or: until what ends it",
    r"\bsuch (?:are|is)\b": "this or these, in front of the verb",
    r"\blets? [^.;:,]{1,40}\bbe\b|\blet (?:run|go|in)\b": "allow, admit, release",
    r"\bin vain\b": "without success",
    r"\bcomes? round\b": "starts over",
    r"\banew\b": "again",
    r"\bgo(?:es)? on\b|\bwent on\b": "continue, resume",
    (
        r"\b(?:no|any|some)body (?:else )?"
        r"(?:waits\b(?! for)|preempts|suffices|(?:is|may be) (?:preempted|evicted|chosen|admitted))"
    ): "nothing, no Workload",
    r"\bthe queueing(?= (?:leaves|does|manages|is|has)\b|[,.:;])": "the manager",
    r"\bmend(?:s|ed)?\b": "fix, repair, correct",
    rf"{_BEGIN}(?-i:Of) (?!course)": "begin with the subject",
    rf"{_BEGIN}(?:Counted|Checked|Deleted|Named|Not known) (?:is|are)\b": "begin with the subject",
}
"""What is searched for, and what to write instead."""

_FORMS = {re.compile(form, re.IGNORECASE | re.MULTILINE): fix for form, fix in FORMS.items()}
_CODE = re.compile(r"^ *```.*?^ *```|`[^`\n]*`|^    .*?$", re.DOTALL | re.MULTILINE)

_SPAN = re.compile(r"`[^`\n]*`")
_FIELD = re.compile(r"\{[^{}]*\}")


def findings(text: str, first: int) -> Iterator[str]:
    """Every form in a text, with its line and what to write instead."""
    flat, starts = "", []
    for line in text.split("\n"):
        bare = line.strip(" #>")
        begins = not bare or bare.startswith(("- ", "* "))
        starts.append(len(flat))
        gap = "\n" if begins else " " if flat.strip("\n") and flat[-1] != "\n" else ""
        flat += gap + bare.lstrip("-* ")
    for form, fix in _FORMS.items():
        for found in form.finditer(flat):
            yield f"{first + bisect_right(starts, found.start()) - 1}: {found[0]!r}: {fix}"


def blanked(text: str) -> str:
    """Markdown without its code, with the same lines."""
    return _CODE.sub(lambda code: "`" + "\n" * code[0].count("\n") + "`", text)


def texts(source: str) -> Iterator[tuple[str, int]]:
    """Comments and strings of a module, what belongs together as one, with their first lines."""
    parts: list[str] = []
    kind, first, last = -1, 0, 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in (tokenize.NL, tokenize.NEWLINE):
            continue
        if token.type != kind or token.start[0] > last + 1:
            if parts:
                yield "\n".join(parts), first
            parts, first = [], token.start[0]
        kind, last = token.type, token.end[0]
        if kind == tokenize.COMMENT:
            parts.append(_SPAN.sub("_", token.string.lstrip("# ")))
        elif kind == tokenize.STRING:
            bare = re.sub(r"^\w*([\"']{3}|[\"'])|[\"']+$", "", token.string)
            if " " not in bare:
                continue  # a name, not prose
            parts.append((_FIELD if token.string[0] == "f" else _SPAN).sub("_", bare))


def test_pages_read_well() -> None:
    shown = [
        f"{path.relative_to(ROOT)}:{one}"
        for path in PAGES
        if path != STYLE
        for one in findings(blanked(path.read_text()), 1)
    ]
    assert not shown, "\n".join(shown)


def test_comments_and_messages_read_well() -> None:
    shown = [
        f"{path.relative_to(ROOT)}:{one}"
        for path in CODE
        for text, first in texts(path.read_text())
        for one in findings(text, first)
    ]
    assert not shown, "\n".join(shown)


@pytest.mark.parametrize(
    "text",
    [
        "the body is no JSON",
        "`spec.replicas` is\nno number",
        "be it that a check goes back",
        "its author is told",
        "the job is not queued any more",
        "what nobody needs any more",
        "the condition tells whether it can admit",
        "Workloads of whom nobody knows",
        "the Workload who has quota",
        "it would wait for ever",
        "such are refused",
        "what lets a Job be admitted",
        "it was let go",
        "tried in vain",
        "the watch goes on",
        "in which nobody else waits",
        "before anybody is preempted",
        "why the queueing leaves it alone",
        "Nothing else. Of these parts none is missing",
        "Counted are the storms",
    ],
)
def test_a_form_is_found(text: str) -> None:
    assert list(findings(text, 1))


@pytest.mark.parametrize(
    "text",
    [
        "there is no such file",
        "it is no longer queued",
        "a user who has no rights",
        "are there any more objects",
        "let the manager run",
        "the owner of these parts",
        "nobody waits for it",
        "the queueing controllers",
    ],
)
def test_plain_english_is_not_found(text: str) -> None:
    assert not list(findings(text, 1))


def test_code_is_not_prose() -> None:
    assert blanked("a `told` b\n```\ntold\n```\nc") == "a `` b\n`\n\n`\nc"
