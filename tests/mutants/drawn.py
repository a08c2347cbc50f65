"""Draws faults by a seed from the code of the shell.

Each fault changes one place: a statement with `await` is dropped, a condition is negated, what was
to be remembered is not, or two arguments of a call change places. What only reports (logs, metrics,
Events) is left alone, because no law judges it.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from pathlib import Path

import attrs
import yaml
from shell_mutants import SOURCES, Edit, ShellMutant, shell_mutants

SHELL = sorted({edit.file for mutant in shell_mutants() for edit in mutant.edits})
"""Where they are drawn from: the modules with planted faults."""
SYMMETRIC = ("isinstance", "max", "min")
REPORTING = (
    *("metric", "_log", "log.", "event(", "Emit(", "warn", "telemetr", "__all__", "_told"),
    *("_count(", "fix["),
)
"""What occurs in code that only reports."""


@attrs.frozen
class DrawnFault(ShellMutant):
    """A fault that was drawn.

    Attributes:
        start: where the changed code begins in its module, in characters.
        end: where it ends.
        statement: whether that is a whole statement.
    """

    start: int
    end: int
    statement: bool


def drawn(count: int, seed: int) -> list[DrawnFault]:
    """Draws faults. A change of the code elsewhere changes neither their names nor their order.

    Args:
        count: how many; fewer are the first of more.
        seed: chooses them.
    """
    every = [fault for path in SHELL for fault in _faults(path)]
    return sorted(every, key=lambda fault: _digest(f"{seed}/{fault.id}"))[:count]


def equivalents() -> dict[str, str]:
    """Why faults change nothing that a law could judge, by their names."""
    text = Path(__file__).with_name("drawn_equivalents.yaml").read_text()
    known: dict[str, str] = yaml.load(text, yaml.CSafeLoader) or {}
    return known


def probed(path: str, faults: Sequence[DrawnFault]) -> str:
    """The source of a module that calls `_probe(number)` at each place of a fault.

    Args:
        path: of the module.
        faults: all that were drawn; the number is the place in the list.
    """
    pieces: list[tuple[int, int, int, int, str]] = []
    for number, fault in enumerate(faults):
        if fault.edits[0].file != path:
            continue
        if fault.statement:
            pieces.append((fault.start, 1, -fault.end, 0, f"_probe({number}); "))
            continue
        pieces.append((fault.start, 1, -fault.end, 1, f"(_probe({number}) or ("))
        pieces.append((fault.end, 0, -fault.start, 1, "))"))
    source = (SOURCES / path).read_text()
    text, done = "", 0
    for at, _closes_first, _outer_first, _statement_first, piece in sorted(pieces):
        text += source[done:at] + piece
        done = at
    return text + source[done:]


def _digest(text: str) -> str:
    return blake2b(text.encode(), digest_size=8).hexdigest()


def _faults(path: str) -> Iterator[DrawnFault]:
    source = (SOURCES / path).read_text()
    lines = source.splitlines(keepends=True)
    earlier: Counter[str] = Counter()

    def at(line: int, column: int) -> int:
        before = lines[line - 1].encode()[:column].decode()
        return sum(map(len, lines[: line - 1])) + len(before)

    def fault(where: str, node: ast.expr | ast.stmt, kind: str, text: str) -> Iterator[DrawnFault]:
        assert node.end_lineno is not None, "the source was parsed"
        assert node.end_col_offset is not None, "the source was parsed"
        start = at(node.lineno, node.col_offset)
        end = at(node.end_lineno, node.end_col_offset)
        edit = Edit(path, source, source[:start] + text + source[end:])
        if any(word in source[start:end] for word in REPORTING):
            return
        name = f"{path}:{where}:{kind}"
        shown = f"{name}:{ast.unparse(node)}"
        earlier[shown] += 1
        name += f":{_digest(f'{shown}:{earlier[shown]}')[:4]}"
        why = f"line {node.lineno}: {' '.join(source[start:end].split())}"
        statement = isinstance(node, ast.stmt)
        yield DrawnFault(name, why, "any", "spread", (edit,), start, end, statement)

    for where, node in _running(ast.parse(source)):
        match node:
            case ast.Expr(value=ast.Await()):
                yield from fault(where, node, "await-is-dropped", "pass")
            case ast.Expr(value=ast.Call()):
                yield from fault(where, node, "call-is-dropped", "pass")
            case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
                yield from fault(where, node, "nothing-is-remembered", "pass")
            case ast.If() if _reports(node):
                continue
            case ast.If(test=test) | ast.IfExp(test=test):
                negated = f"(not ({ast.unparse(test)}))"
                yield from fault(where, test, "condition-is-negated", negated)
            case ast.Call(args=[*_, ast.Name() as one, ast.Name() as other]) if (
                one.id != other.id and ast.unparse(node.func) not in SYMMETRIC
            ):
                swapped = [*node.args[:-2], other, one]
                call = ast.unparse(ast.Call(node.func, swapped, node.keywords))
                yield from fault(where, node, "arguments-are-swapped", call)


def _reports(statement: ast.stmt) -> bool:
    """Whether all that a statement decides or does is what is reported, and how."""
    match statement:
        case ast.If(body=body, orelse=orelse):
            branches = [*body, *orelse]
            named = [one for one in branches if isinstance(one, ast.Assign) and _is_local(one)]
            return named != branches and all(_reports(one) for one in branches if one not in named)
        case ast.Expr():
            return any(word in ast.unparse(statement) for word in REPORTING)
    return False


def _is_local(assigned: ast.Assign) -> bool:
    return all(isinstance(target, ast.Name) for target in assigned.targets)


def _running(tree: ast.AST, where: str = "") -> Iterator[tuple[str, ast.AST]]:
    """The nodes inside functions, except `__init__`, which has to make what others use.

    Each comes with the name of its function.
    """
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef):
            yield from _running(node, f"{where}{node.name}.")
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            name = f"{where}{node.name}"
            if node.name != "__init__":
                for statement in node.body:
                    yield from ((name, each) for each in _inside(statement))
            yield from _running(node, f"{name}.")
        else:
            yield from _running(node, where)


def _inside(node: ast.AST) -> Iterator[ast.AST]:
    """A node and all below it that belong to the same function and have a place of their own."""
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.JoinedStr):
        yield node
        for child in ast.iter_child_nodes(node):
            yield from _inside(child)
