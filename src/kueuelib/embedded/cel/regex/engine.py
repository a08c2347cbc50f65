"""Running patterns: a program for a set of threads, and the automaton that remembers its steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Final

from kueuelib.embedded.cel.regex.classes import WORD, CharSet
from kueuelib.embedded.cel.regex.syntax import (
    At,
    BadPattern,
    Chain,
    Choice,
    Edge,
    One,
    Tree,
    parse,
)

LONGEST_PROGRAM = 10_000
MOST_STATES = 500
SLICE = 512
"""Characters between two payments."""

Spend = Callable[[int], None]
_MATCH: Final = -1
_WORD: Final = CharSet(WORD)
_BEGIN, _LINE, _LETTER, _OTHER = range(4)
"""What stands before a position: nothing, a line break, a letter of a word, something else."""


def _before(letter: str) -> int:
    if letter == "\n":
        return _LINE
    return _LETTER if _WORD.has(letter) else _OTHER


class _State(dict[str, "_State | None"]):
    """Threads between two characters, and where each next character leads; None: it matched."""

    __slots__ = ("before", "ends", "threads")

    def __init__(self, threads: tuple[int, ...], before: int) -> None:
        super().__init__()
        self.threads = threads
        self.before = before
        self.ends: bool | None = None


class Pattern:
    """A compiled pattern. Time is linear in the text; what it takes is paid for by `spend`."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._chars: list[CharSet | None] = []
        self._edges: list[Edge | None] = []
        self._next: list[tuple[int, ...]] = []
        tree = parse(text)
        self._start = self._emit(tree, self._add(None, None, (_MATCH,)))
        self._states: dict[tuple[tuple[int, ...], int], _State] = {}
        self.weight = max(1, len(text) // 4)

    # ---- building

    def _add(self, chars: CharSet | None, edge: Edge | None, following: tuple[int, ...]) -> int:
        if len(self._next) >= LONGEST_PROGRAM:
            raise BadPattern("expression too large", self.text[:100])
        self._chars.append(chars)
        self._edges.append(edge)
        self._next.append(following)
        return len(self._next) - 1

    def _emit(self, tree: Tree, then: int) -> int:
        """Adds what matches a tree and goes on at `then`; where it begins."""
        if isinstance(tree, One):
            return self._add(tree.chars, None, (then,))
        if isinstance(tree, At):
            return self._add(None, tree.edge, (then,))
        if isinstance(tree, Chain):
            for part in reversed(tree.parts):
                then = self._emit(part, then)
            return then
        if isinstance(tree, Choice):
            return self._add(None, None, tuple(self._emit(part, then) for part in tree.parts))
        if tree.most is None:
            loop = self._add(None, None, ())
            body = self._emit(tree.part, loop)
            self._next[loop] = (body, then) if tree.greedy else (then, body)
            then = loop
        else:
            last = then
            for _ in range(tree.most - tree.least):
                body = self._emit(tree.part, then)
                then = self._add(None, None, (body, last) if tree.greedy else (last, body))
        for _ in range(tree.least):
            then = self._emit(tree.part, then)
        return then

    # ---- stepping

    def _closure(
        self, threads: tuple[int, ...], before: int, letter: str, seen: set[int]
    ) -> tuple[list[int], bool]:
        """The threads that wait for a character, in order, and whether one has matched.

        Args:
            threads: where they are.
            before: what stands before.
            letter: what comes next; empty at the end.
            seen: instructions that need not be looked at again; grows.
        """
        waiting: list[int] = []
        stack = list(reversed(threads))
        while stack:
            at = stack.pop()
            if at in seen:
                continue
            seen.add(at)
            if self._chars[at] is not None:
                waiting.append(at)
                continue
            edge = self._edges[at]
            if edge is not None and not _holds(edge, before, letter):
                continue
            following = self._next[at]
            if following == (_MATCH,):
                return waiting, True
            stack.extend(reversed(following))
        return waiting, False

    def _state(self, threads: tuple[int, ...], before: int) -> _State:
        key = (threads, before)
        found = self._states.get(key)
        if found is None:
            if len(self._states) >= MOST_STATES:
                self._states.clear()
            found = self._states[key] = _State(threads, before)
        return found

    def _step(self, state: _State, letter: str) -> _State | None:
        waiting, matched = self._closure(state.threads, state.before, letter, set())
        found = None
        if not matched:
            following = {
                self._next[at][0] for at in waiting if (s := self._chars[at]) and s.has(letter)
            }
            threads = (*sorted(following - {self._start}), self._start)
            found = self._state(threads, _before(letter))
        if len(state) < MOST_STATES:
            state[letter] = found
        return found

    def matches(self, text: str, spend: Spend) -> bool:
        """Whether the pattern matches somewhere in the text."""
        state = self._state((self._start,), _BEGIN)
        for start in range(0, len(text), SLICE):
            spend(SLICE // 40 * self.weight)
            for letter in text[start : start + SLICE]:
                following = state.get(letter, state)
                if following is state and letter not in state:
                    spend(len(state.threads))
                    following = self._step(state, letter)
                if following is None:
                    return True
                state = following
        if state.ends is None:
            _, state.ends = self._closure(state.threads, state.before, "", set())
        return state.ends

    def find(self, text: str, begin: int, spend: Spend) -> tuple[int, int] | None:
        """The first match from a position on: the leftmost, and of those the preferred one."""
        threads: dict[int, int] = {}
        found: tuple[int, int] | None = None
        before = _BEGIN if begin == 0 else _before(text[begin - 1])
        for position in range(begin, len(text) + 1):
            if found is None:
                threads.setdefault(self._start, position)
            if not threads:
                break
            letter = text[position : position + 1]
            spend(len(threads))
            following: dict[int, int] = {}
            seen: set[int] = set()
            matched = False
            for at, origin in threads.items():
                waiting, matched = self._closure((at,), before, letter, seen)
                for each in waiting:
                    chars = self._chars[each]
                    if letter and chars is not None and chars.has(letter):
                        following.setdefault(self._next[each][0], origin)
                if matched:
                    found = (origin, position)
                    break
            threads = following
            before = _before(letter) if letter else _OTHER
        return found

    def find_all(self, text: str, spend: Spend) -> Iterator[str]:
        """Every match, from left to right, none overlapping."""
        position, last_end = 0, -1
        while position <= len(text):
            found = self.find(text, position, spend)
            if found is None:
                return
            start, end = found
            if end > start or start != last_end:
                yield text[start:end]
            last_end = end
            position = end if end > position else position + 1


def _holds(edge: Edge, before: int, letter: str) -> bool:
    if edge is Edge.TEXT_BEGIN:
        return before == _BEGIN
    if edge is Edge.TEXT_END:
        return not letter
    if edge is Edge.LINE_BEGIN:
        return before in (_BEGIN, _LINE)
    if edge is Edge.LINE_END:
        return letter in ("", "\n")
    boundary = (before == _LETTER) is not (bool(letter) and _WORD.has(letter))
    return boundary is (edge is Edge.WORD)


@lru_cache(maxsize=256)
def compile_pattern(text: str) -> Pattern:
    """The pattern of a text.

    Raises:
        BadPattern: it is none.
    """
    return Pattern(text)
