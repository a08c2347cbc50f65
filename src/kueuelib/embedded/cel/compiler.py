"""From a tree to a typed closure: checking and compiling are one walk."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import attrs

from kueuelib.embedded.cel import loops
from kueuelib.embedded.cel.ast import (
    Call,
    Const,
    Ident,
    ListLiteral,
    Logic,
    Loop,
    MapLiteral,
    Node,
    Select,
    WithValue,
)
from kueuelib.embedded.cel.errors import CelError, EvalError, Issue
from kueuelib.embedded.cel.library import Library, Overload
from kueuelib.embedded.cel.running import (
    Env,
    Run,
    absorbing,
    dispatched,
    index_optional,
    invoked,
    make_list,
    make_map,
    select,
    select_optional,
    test_field,
)
from kueuelib.embedded.cel.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DYN,
    INT,
    NULL,
    STRING,
    TYPE,
    UINT,
    Type,
    fits,
    is_variable,
    joined,
    list_of,
    map_of,
    optional_of,
    resolved,
)
from kueuelib.embedded.cel.values import Optional, TypeValue, Uint

DEEPEST = 150
"""Levels of a tree; long sums count each term."""

LIST_COST = 10
MAP_COST = 30

_LITERALS: Mapping[type, Type] = {
    bool: BOOL,
    int: INT,
    Uint: UINT,
    float: DOUBLE,
    str: STRING,
    bytes: BYTES,
    type(None): NULL,
}
_TYPE_NAMES = frozenset(
    (
        *("bool", "int", "uint", "double", "string", "bytes", "list", "map", "null_type", "type"),
        *("optional_type", "google.protobuf.Timestamp", "google.protobuf.Duration", "net.IP"),
        *("net.CIDR", "kubernetes.URL", "kubernetes.Quantity", "kubernetes.NamedFormat"),
    )
)


@attrs.frozen(eq=False)
class Code:
    """A compiled part: its type, what computes it, and what one computation costs."""

    type: Type
    run: Run
    cost: int = 0
    const: bool = False


@attrs.frozen
class Variable:
    """A name in scope: its place in the environment and its type."""

    slot: int
    type: Type


def _failed(_: Env) -> Any:
    raise AssertionError("an expression with mistakes is never run")


BROKEN = Code(DYN, _failed)


class Compiler:
    """Compiles one expression; collects mistakes.

    Args:
        library: the functions.
        variables: the names that the expression may use, with their types, in the order of their
            places in the environment (from place 1 on).
    """

    def __init__(self, library: Library, variables: Mapping[str, Type]) -> None:
        self._library = library
        self._scope = {
            name: Variable(slot, type_)
            for slot, (name, type_) in enumerate(variables.items(), start=1)
        }
        self._depth = 0
        self.slots = len(variables) + 1
        self.issues: list[Issue] = []
        self.used: set[str] = set()
        self._globals = frozenset(variables)

    def compile(self, node: Node) -> Code:
        """The code of a tree; after mistakes it must not be run."""
        self._depth += 1
        try:
            if self._depth > DEEPEST:
                return self._mistake(node, f"expression recursion limit exceeded: {DEEPEST}")
            return self._compile(node)
        finally:
            self._depth -= 1

    def _compile(self, node: Node) -> Code:
        if isinstance(node, Const):
            value = node.value
            return Code(_LITERALS[type(value)], lambda _: value, const=True)
        if isinstance(node, Ident):
            return self._name(node)
        if isinstance(node, Select):
            return self._select(node)
        if isinstance(node, Call):
            return self._call(node)
        if isinstance(node, Logic):
            return self._logic(node)
        if isinstance(node, ListLiteral):
            return self._list(node)
        if isinstance(node, MapLiteral):
            return self._map(node)
        if isinstance(node, Loop):
            return self._loop(node)
        assert isinstance(node, WithValue)
        return self._with_value(node)

    def _mistake(self, node: Node, message: str) -> Code:
        issue = Issue(node.position, message)
        if issue not in self.issues:
            self.issues.append(issue)
        return BROKEN

    # ---- names and fields

    def _name(self, node: Ident) -> Code:
        found = self._scope.get(node.name)
        if found is not None:
            if node.name in self._globals:
                self.used.add(node.name)
            slot = found.slot
            return Code(found.type, lambda env: env[slot], 1)
        if node.name in _TYPE_NAMES:
            return _type_code(node.name)
        return self._mistake(node, f"undeclared reference to '{node.name}' (in container '')")

    def _dotted(self, node: Node) -> str | None:
        """`a.b.c` of plain names that are not variables."""
        parts: list[str] = []
        while isinstance(node, Select) and not node.test and not node.optional:
            parts.append(node.field)
            node = node.operand
        if not isinstance(node, Ident) or node.name in self._scope:
            return None
        return ".".join([node.name, *reversed(parts)])

    def _select(self, node: Select) -> Code:
        if not node.test and not node.optional and (name := self._dotted(node)) in _TYPE_NAMES:
            assert name is not None
            return _type_code(name)
        operand = self.compile(node.operand)
        if operand is BROKEN:
            return BROKEN
        type_ = self._field_type(node, operand.type)
        if type_ is None:
            return BROKEN
        field, cost = node.field, operand.cost + 1
        if node.test:
            return Code(BOOL, test_field(operand.run, field), cost)
        if node.optional or operand.type.name == "optional_type":
            if type_.name != "optional_type":
                type_ = optional_of(type_)
            return Code(type_, select_optional(operand.run, field), cost)
        return Code(type_, select(operand.run, field), cost)

    def _field_type(self, node: Select, operand: Type) -> Type | None:
        if operand.name == "optional_type":
            operand = operand.params[0]
        if operand == DYN:
            return DYN
        if operand.name == "map":
            if operand.params[0] in (STRING, DYN):
                return operand.params[1]
        elif operand.fields is not None:
            found = operand.fields.get(node.field)
            if found is None:
                self._mistake(node, f"undefined field '{node.field}'")
            return found
        self._mistake(node, f"type '{operand}' does not support field selection")
        return None

    # ---- calls

    def _call(self, node: Call) -> Code:
        if node.name == "_?_:_":
            return self._condition(node)
        target, name = node.target, node.name
        if target is not None:
            prefix = self._dotted(target)
            if prefix is not None and self._library.overloads(f"{prefix}.{name}", method=False):
                target, name = None, f"{prefix}.{name}"
        method = target is not None
        overloads = self._library.overloads(name, method=method)
        given = (*((target,) if target is not None else ()), *node.args)
        mixed = method and name == "format"
        args = [
            self._list(each, mixed=True)
            if mixed and isinstance(each, ListLiteral)
            else self.compile(each)
            for each in given
        ]
        if not overloads:
            return self._mistake(node, f"undeclared reference to '{name}' (in container '')")
        if any(arg is BROKEN for arg in args):
            return BROKEN
        return self._resolved(node, name, overloads, args, method=method)

    def _resolved(
        self,
        node: Node,
        name: str,
        overloads: Sequence[Overload],
        args: list[Code],
        *,
        method: bool,
    ) -> Code:
        types = [arg.type for arg in args]
        fitting: list[Overload] = []
        results: list[Type] = []
        for overload in overloads:
            bound: dict[str, Type] = {}
            if len(overload.params) == len(types) and all(
                fits(param, type_, bound)
                for param, type_ in zip(overload.params, types, strict=True)
            ):
                fitting.append(overload)
                results.append(resolved(overload.result, bound))
        if not fitting:
            shown = _shown_call(types, method=method)
            text = f"found no matching overload for '{name}' applied to '{shown}'"
            return self._mistake(node, text)
        result = results[0]
        if any(each != result for each in results):
            result = DYN
        cost = sum(arg.cost for arg in args) + 1
        runs = [arg.run for arg in args]
        if name == "_[?_]":
            return Code(result, index_optional(runs[0], runs[1]), cost)
        if name in ("matches", "find", "findAll") and len(args) > 1 and args[1].const:
            problem = _pattern_problem(args[1])
            if problem:
                return self._mistake(node, problem)
        if len(fitting) == 1 and _certain(fitting[0], types):
            return Code(result, invoked(fitting[0], runs), cost)
        return Code(result, dispatched(fitting, runs), cost)

    def _condition(self, node: Call) -> Code:
        test, yes, no = (self.compile(each) for each in node.args)
        if BROKEN in (test, yes, no):
            return BROKEN
        type_ = joined(yes.type, no.type)
        if type_ is None or test.type not in (BOOL, DYN):
            shown = _shown_call([test.type, yes.type, no.type], method=False)
            text = f"found no matching overload for '_?_:_' applied to '{shown}'"
            return self._mistake(node, text)
        check, left, right = test.run, yes.run, no.run

        def run(env: Env) -> Any:
            found = check(env)
            if found is True:
                return left(env)
            if found is False:
                return right(env)
            raise EvalError("no such overload")

        return Code(type_, run, test.cost + max(yes.cost, no.cost) + 1)

    def _logic(self, node: Logic) -> Code:
        args = [self.compile(each) for each in node.args]
        if BROKEN in args:
            return BROKEN
        if any(arg.type not in (BOOL, DYN) for arg in args):
            shown = _shown_call([arg.type for arg in args[:2]], method=False)
            text = f"found no matching overload for '{node.name}' applied to '{shown}'"
            return self._mistake(node, text)
        run = absorbing([arg.run for arg in args], decides=node.name == "_||_")
        return Code(BOOL, run, sum(arg.cost for arg in args) + 1)

    # ---- literals

    def _list(self, node: ListLiteral, *, mixed: bool = False) -> Code:
        items = [self.compile(each) for each in node.items]
        if BROKEN in items:
            return BROKEN
        type_: Type | None = None
        for i, item in enumerate(items):
            given = self._unwrapped(node.items[i], item.type, optional=i in node.optional)
            if given is None:
                return BROKEN
            together = given if type_ is None else DYN if mixed else joined(type_, given)
            if together is None:
                text = f"expected type '{type_}' but found '{given}'"
                return self._mistake(node.items[i], text)
            type_ = together
        cost = sum(item.cost for item in items) + LIST_COST
        run = make_list([item.run for item in items], node.optional)
        return Code(list_of(type_ or DYN), run, cost)

    def _map(self, node: MapLiteral) -> Code:
        key_type: Type | None = None
        value_type: Type | None = None
        runs: list[tuple[Run, Run]] = []
        cost = MAP_COST
        for i, (key_node, value_node) in enumerate(node.entries):
            key, value = self.compile(key_node), self.compile(value_node)
            if BROKEN in (key, value):
                return BROKEN
            given = self._unwrapped(value_node, value.type, optional=i in node.optional)
            if given is None:
                return BROKEN
            keys = key.type if key_type is None else joined(key_type, key.type)
            values = given if value_type is None else joined(value_type, given)
            if keys is None:
                text = f"expected type '{key_type}' but found '{key.type}'"
                return self._mistake(key_node, text)
            if values is None:
                text = f"expected type '{value_type}' but found '{given}'"
                return self._mistake(value_node, text)
            if key.type not in (STRING, INT, UINT, BOOL, DYN):
                return self._mistake(key_node, f"unsupported map key type: {key.type}")
            key_type, value_type = keys, values
            runs.append((key.run, value.run))
            cost += key.cost + value.cost
        return Code(map_of(key_type or DYN, value_type or DYN), make_map(runs, node.optional), cost)

    def _unwrapped(self, node: Node, type_: Type, *, optional: bool) -> Type | None:
        if not optional:
            return type_
        if type_ == DYN:
            return DYN
        if type_.name != "optional_type":
            self._mistake(node, f"expected type 'optional_type({type_})' but found '{type_}'")
            return None
        return type_.params[0]

    # ---- macros

    def _loop(self, node: Loop) -> Code:
        source = self.compile(node.source)
        if source is BROKEN:
            return BROKEN
        pair = len(node.names) == 2
        kinds = _items_of(source.type, pair=pair)
        if kinds is None:
            text = f"expression of type '{source.type}' cannot be range of a comprehension (must be"
            return self._mistake(node.source, f"{text} list, map, or dynamic)")
        with self._declared(node.names, kinds) as slots:
            condition = None if node.condition is None else self.compile(node.condition)
            body = self.compile(node.body)
        if BROKEN in (body, condition):
            return BROKEN
        tested = body if node.macro in ("all", "exists", "exists_one", "filter") else condition
        if tested is not None and tested.type not in (BOOL, DYN):
            text = f"found no matching overload for '_?_:_' applied to '({tested.type}, dyn, dyn)'"
            return self._mistake(node, text)
        result = self._loop_type(node, source.type, body.type)
        if result is None:
            return BROKEN
        each = body.cost + (condition.cost if condition else 0) + 3
        loop = loops.Comprehension(
            source.run,
            slots,
            None if condition is None else condition.run,
            body.run,
            each,
        )
        return Code(result, loops.MACROS[node.macro](loop), source.cost + 1)

    @contextmanager
    def _declared(
        self, names: tuple[str, ...], types: tuple[Type, ...]
    ) -> Iterator[tuple[int, ...]]:
        """Variables of a macro, in whose body they hide others; gives their places."""
        scope, known = self._scope, self._globals
        slots = tuple(range(self.slots, self.slots + len(names)))
        self.slots += len(names)
        self._scope = {**scope, **dict(zip(names, map(Variable, slots, types), strict=True))}
        self._globals = known - set(names)
        yield slots
        self._scope, self._globals = scope, known

    def _loop_type(self, node: Loop, source: Type, body: Type) -> Type | None:
        macro = node.macro
        if macro in ("all", "exists", "exists_one"):
            return BOOL
        if macro == "filter":
            return source if source.name == "list" else list_of(_items_of(source, pair=False)[0])  # type: ignore[index]
        if macro in ("map", "transformList"):
            return list_of(body)
        if macro == "transformMap":
            kinds = _items_of(source, pair=True)
            assert kinds is not None
            return map_of(kinds[0], body)
        if body.name != "map" and body != DYN:
            self._mistake(node.body, f"expected type 'map' but found '{body}'")
            return None
        return body if body.name == "map" else map_of(DYN, DYN)

    def _with_value(self, node: WithValue) -> Code:
        source = self.compile(node.source)
        if source is BROKEN:
            return BROKEN
        if source.type.name not in ("optional_type", "dyn"):
            name = "optFlatMap" if node.flat else "optMap"
            text = f"found no matching overload for '{name}' applied to '{source.type}'"
            return self._mistake(node, text)
        inner = source.type.params[0] if source.type.params else DYN
        with self._declared((node.name,), (inner,)) as (slot,):
            body = self.compile(node.body)
        if body is BROKEN:
            return BROKEN
        if node.flat and body.type.name not in ("optional_type", "dyn"):
            text = f"expected type 'optional_type' but found '{body.type}'"
            return self._mistake(node.body, text)
        given, inside, flat = source.run, body.run, node.flat

        def run(env: Env) -> Any:
            found = given(env)
            if not isinstance(found, Optional):
                raise EvalError("no such overload")
            if not found.present:
                return found
            env[slot] = found.value
            result = inside(env)
            if not flat:
                return Optional(result)
            if not isinstance(result, Optional):
                raise EvalError("no such overload")
            return result

        type_ = body.type if node.flat else optional_of(body.type)
        return Code(type_, run, source.cost + body.cost + 1)


def _type_code(name: str) -> Code:
    value = TypeValue(name)
    return Code(TYPE, lambda _: value)


def _items_of(type_: Type, *, pair: bool) -> tuple[Type, ...] | None:
    """The types of the variables of a macro."""
    if type_.name == "list":
        return (INT, type_.params[0]) if pair else type_.params
    if type_.name == "map":
        return type_.params if pair else type_.params[:1]
    if type_ == DYN:
        return (DYN, DYN) if pair else (DYN,)
    return None


def _certain(overload: Overload, types: Sequence[Type]) -> bool:
    """Whether the types leave no doubt that the overload is the right one."""
    return all(
        is_variable(param) or param == DYN or (type_ != DYN and not type_.nullable)
        for param, type_ in zip(overload.params, types, strict=True)
    )


def _shown_call(types: Sequence[Type], *, method: bool) -> str:
    if method:
        return f"{types[0]}.({', '.join(map(str, types[1:]))})"
    return f"({', '.join(map(str, types))})"


def _pattern_problem(pattern: Code) -> str:
    from kueuelib.embedded.cel.regex import compile_pattern

    run: Callable[[Env], Any] = pattern.run
    try:
        compile_pattern(run([]))
    except CelError as error:
        return str(error)
    return ""
