"""Compiles expressions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, Final

import attrs

from kueuelib.embedded.cel import ast, evaluation, types
from kueuelib.embedded.cel.authorizing import add_authorizer
from kueuelib.embedded.cel.errors import CelError, CompileError, CostBudget, EvalError, Issue
from kueuelib.embedded.cel.evaluation import (
    NO_OVERLOAD,
    Env,
    Run,
    decided,
    dispatched,
    index_optional,
    invoked,
    put,
)
from kueuelib.embedded.cel.functions import add_network, add_quantities, add_texts
from kueuelib.embedded.cel.operators import add_conversions, add_lists, add_operators
from kueuelib.embedded.cel.parser import parse
from kueuelib.embedded.cel.regex import compile_pattern
from kueuelib.embedded.cel.times import add_times
from kueuelib.embedded.cel.types import DYN, Library, Overload, Type, fits, is_variable, resolved
from kueuelib.embedded.cel.values import Optional, TypeValue, Uint

# ---- the macros over lists and maps --------------------------------------------------------------


@attrs.frozen(eq=False)
class Comprehension:
    """A compiled loop.

    Attributes:
        source: computes the list or map.
        slots: the places of the one or two variables.
        condition: which items count, None for all.
        body: the test or the result.
        cost: of one turn.
    """

    source: Run
    slots: tuple[int, ...]
    condition: Run | None
    body: Run
    cost: int

    def turns(self, env: Env) -> Iterator[Any]:
        """Sets the variables for each item in turn; yields its (first) value."""
        values = self.source(env)
        spend, cost = env[0].spend, self.cost
        if len(self.slots) == 1:
            (slot,) = self.slots
            if not isinstance(values, list | dict):
                raise EvalError(NO_OVERLOAD)
            for value in values:
                spend(cost)
                env[slot] = value
                yield value
            return
        first, second = self.slots
        if isinstance(values, dict):
            pairs: Any = values.items()
        elif isinstance(values, list):
            pairs = enumerate(values)
        else:
            raise EvalError(NO_OVERLOAD)
        for key, value in pairs:
            spend(cost)
            env[first], env[second] = key, value
            yield key

    def counts(self, env: Env) -> bool:
        """Whether the present item fulfils the condition."""
        return self.condition is None or _true(self.condition(env))


def _true(value: Any) -> bool:
    if value is True or value is False:
        return bool(value)
    raise EvalError(NO_OVERLOAD)


def _quantified(loop: Comprehension, *, decides: bool) -> Run:
    """`all` and `exists`: the same test for every item."""
    body = loop.body
    return lambda env: decided((body for _ in loop.turns(env)), env, decides=decides)


def _map(loop: Comprehension) -> Run:
    return lambda env: [loop.body(env) for _ in loop.turns(env) if loop.counts(env)]


def _transform_entry(loop: Comprehension) -> Run:
    def run(env: Env) -> dict[Any, Any]:
        entries: dict[Any, Any] = {}
        for _ in loop.turns(env):
            if loop.counts(env):
                entry = loop.body(env)
                if not isinstance(entry, dict):
                    raise EvalError(NO_OVERLOAD)
                for key, value in entry.items():
                    put(entries, key, value)
        return entries

    return run


MACROS: Final[Mapping[str, Callable[[Comprehension], Run]]] = {
    "all": lambda loop: _quantified(loop, decides=False),
    "exists": lambda loop: _quantified(loop, decides=True),
    "exists_one": lambda loop: lambda env: sum(_true(loop.body(env)) for _ in loop.turns(env)) == 1,
    "filter": lambda loop: lambda env: [item for item in loop.turns(env) if _true(loop.body(env))],
    "map": _map,
    "transformList": _map,
    "transformMap": lambda loop: (
        lambda e: {key: loop.body(e) for key in loop.turns(e) if loop.counts(e)}
    ),
    "transformMapEntry": _transform_entry,
}
"""The functions that run macros."""


# ---- compiled parts of an expression, and the code of constants and type names -------------------

LIST_COST = 10
MAP_COST = 30

LITERALS: Mapping[type, types.Type] = {
    bool: types.BOOL,
    int: types.INT,
    Uint: types.UINT,
    float: types.DOUBLE,
    str: types.STRING,
    bytes: types.BYTES,
    type(None): types.NULL,
}
TYPE_NAMES = frozenset(
    (
        *("bool", "int", "uint", "double", "string", "bytes", "list", "map", "null_type", "type"),
        *("optional_type", "google.protobuf.Timestamp", "google.protobuf.Duration", "net.IP"),
        *("net.CIDR", "kubernetes.URL", "kubernetes.Quantity", "kubernetes.NamedFormat"),
    )
)


@attrs.frozen(eq=False)
class Code:
    """A compiled part: its type, its function, and its cost."""

    type: types.Type
    run: Run
    cost: int = 0
    const: bool = False


@attrs.frozen
class Variable:
    """A name in scope: its place in the environment and its type."""

    slot: int
    type: types.Type


def _failed(_: Env) -> Any:
    raise AssertionError("an expression with mistakes is never run")


BROKEN = Code(types.DYN, _failed)


def type_code(name: str) -> Code:
    """The code of the name of a type."""
    value = TypeValue(name)
    return Code(types.TYPE, lambda _: value)


# ---- resolves the overloads of a call by the types of its arguments, and makes its code ----------


def call_code(
    name: str, overloads: Sequence[Overload], args: Sequence[Code], *, method: bool
) -> Code | str:
    """The code of a call, or the error if no overload fits or a pattern is malformed.

    Args:
        name: of the function.
        overloads: all functions of that name.
        args: the arguments, the target of a method first.
        method: whether the call is a method.
    """
    types = [arg.type for arg in args]
    fitting: list[Overload] = []
    results: list[Type] = []
    for overload in overloads:
        bound: dict[str, Type] = {}
        if len(overload.params) == len(types) and all(
            fits(param, type_, bound) for param, type_ in zip(overload.params, types, strict=True)
        ):
            fitting.append(overload)
            results.append(resolved(overload.result, bound))
    if not fitting:
        return no_overload(name, types, method=method)
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
            return problem
    if len(fitting) == 1 and _certain(fitting[0], types):
        return Code(result, invoked(fitting[0], runs), cost)
    return Code(result, dispatched(fitting, runs), cost)


def no_overload(name: str, types: Sequence[Type], *, method: bool = False) -> str:
    """The error of a call without a fitting overload."""
    if method:
        shown = f"{types[0]}.({', '.join(map(str, types[1:]))})"
    else:
        shown = f"({', '.join(map(str, types))})"
    return f"found no matching overload for '{name}' applied to '{shown}'"


def _certain(overload: Overload, types: Sequence[Type]) -> bool:
    """Whether the types prove that the overload is the right one."""
    return all(
        is_variable(param) or param == DYN or (type_ != DYN and not type_.nullable)
        for param, type_ in zip(overload.params, types, strict=True)
    )


def _pattern_problem(pattern: Code) -> str:
    try:
        compile_pattern(pattern.run([]))
    except CelError as error:
        return str(error)
    return ""


# ---- compiles a tree to a typed closure; checking and compiling are one pass ---------------------

DEEPEST = 150
"""The maximum number of levels in a tree; in long sums, each term counts."""


class Compiler:
    """Compiles one expression, and collects errors.

    Args:
        library: the functions.
        variables: the names that the expression may use, with their types, in the order of their
            places in the environment (from place 1 on).
    """

    def __init__(self, library: Library, variables: Mapping[str, types.Type]) -> None:
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

    def compile(self, node: ast.Expr) -> Code:
        """The code of a tree; it must not be run after errors."""
        self._depth += 1
        try:
            if self._depth > DEEPEST:
                return self._mistake(node, f"expression recursion limit exceeded: {DEEPEST}")
            return self._compile(node)
        finally:
            self._depth -= 1

    def _compile(self, node: ast.Expr) -> Code:
        if isinstance(node, ast.Const):
            value = node.value
            return Code(LITERALS[type(value)], lambda _: value, const=True)
        if isinstance(node, ast.Ident):
            return self._name(node)
        if isinstance(node, ast.Select):
            return self._select(node)
        if isinstance(node, ast.CallExpr):
            return self._call(node)
        if isinstance(node, ast.Logic):
            return self._logic(node)
        if isinstance(node, ast.ListLiteral):
            return self._list(node)
        if isinstance(node, ast.MapLiteral):
            return self._map(node)
        if isinstance(node, ast.Loop):
            return self._loop(node)
        assert isinstance(node, ast.WithValue)
        return self._with_value(node)

    def _mistake(self, node: ast.Expr, message: str) -> Code:
        issue = Issue(node.position, message)
        if issue not in self.issues:
            self.issues.append(issue)
        return BROKEN

    # ---- names and fields

    def _name(self, node: ast.Ident) -> Code:
        variable = self._scope.get(node.name)
        if variable is not None:
            if node.name in self._globals:
                self.used.add(node.name)
            slot = variable.slot
            return Code(variable.type, lambda env: env[slot], 1)
        if node.name in TYPE_NAMES:
            return type_code(node.name)
        return self._mistake(node, f"undeclared reference to '{node.name}' (in container '')")

    def _dotted(self, node: ast.Expr) -> str | None:
        """`a.b.c` of plain names that are not variables."""
        parts: list[str] = []
        while isinstance(node, ast.Select) and not node.test and not node.optional:
            parts.append(node.field)
            node = node.operand
        if not isinstance(node, ast.Ident) or node.name in self._scope:
            return None
        return ".".join([node.name, *reversed(parts)])

    def _select(self, node: ast.Select) -> Code:
        if not node.test and not node.optional and (name := self._dotted(node)) in TYPE_NAMES:
            assert name is not None
            return type_code(name)
        operand = self.compile(node.operand)
        if operand is BROKEN:
            return BROKEN
        type_ = self._field_type(node, operand.type)
        if type_ is None:
            return BROKEN
        field, cost = node.field, operand.cost + 1
        if node.test:
            return Code(types.BOOL, evaluation.test_field(operand.run, field), cost)
        if node.optional or operand.type.name == "optional_type":
            if type_.name != "optional_type":
                type_ = types.optional_of(type_)
            return Code(type_, evaluation.select_optional(operand.run, field), cost)
        return Code(type_, evaluation.select(operand.run, field), cost)

    def _field_type(self, node: ast.Select, operand: types.Type) -> types.Type | None:
        if operand.name == "optional_type":
            operand = operand.params[0]
        if operand == types.DYN:
            return types.DYN
        if operand.name == "map":
            if operand.params[0] in (types.STRING, types.DYN):
                return operand.params[1]
        elif operand.fields is not None:
            field_type = operand.fields.get(node.field)
            if field_type is None:
                self._mistake(node, f"undefined field '{node.field}'")
            return field_type
        self._mistake(node, f"type '{operand}' does not support field selection")
        return None

    # ---- calls

    def _call(self, node: ast.CallExpr) -> Code:
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
            if mixed and isinstance(each, ast.ListLiteral)
            else self.compile(each)
            for each in given
        ]
        if not overloads:
            return self._mistake(node, f"undeclared reference to '{name}' (in container '')")
        if any(arg is BROKEN for arg in args):
            return BROKEN
        code = call_code(name, overloads, args, method=method)
        return self._mistake(node, code) if isinstance(code, str) else code

    def _condition(self, node: ast.CallExpr) -> Code:
        test, yes, no = (self.compile(each) for each in node.args)
        if BROKEN in (test, yes, no):
            return BROKEN
        type_ = types.joined(yes.type, no.type)
        if type_ is None or test.type not in (types.BOOL, types.DYN):
            return self._mistake(node, no_overload("_?_:_", [test.type, yes.type, no.type]))
        check, left, right = test.run, yes.run, no.run

        def run(env: evaluation.Env) -> Any:
            outcome = check(env)
            if outcome is True:
                return left(env)
            if outcome is False:
                return right(env)
            raise EvalError("no such overload")

        return Code(type_, run, test.cost + max(yes.cost, no.cost) + 1)

    def _logic(self, node: ast.Logic) -> Code:
        args = [self.compile(each) for each in node.args]
        if BROKEN in args:
            return BROKEN
        if any(arg.type not in (types.BOOL, types.DYN) for arg in args):
            return self._mistake(node, no_overload(node.name, [arg.type for arg in args[:2]]))
        run = evaluation.absorbing([arg.run for arg in args], decides=node.name == "_||_")
        return Code(types.BOOL, run, sum(arg.cost for arg in args) + 1)

    # ---- literals

    def _list(self, node: ast.ListLiteral, *, mixed: bool = False) -> Code:
        items = [self.compile(each) for each in node.items]
        if BROKEN in items:
            return BROKEN
        type_: types.Type | None = None
        for i, item in enumerate(items):
            given = self._unwrapped(node.items[i], item.type, optional=i in node.optional)
            if given is None:
                return BROKEN
            together = (
                given if type_ is None else types.DYN if mixed else types.joined(type_, given)
            )
            if together is None:
                text = f"expected type '{type_}' but found '{given}'"
                return self._mistake(node.items[i], text)
            type_ = together
        cost = sum(item.cost for item in items) + LIST_COST
        run = evaluation.make_list([item.run for item in items], node.optional)
        return Code(types.list_of(type_ or types.DYN), run, cost)

    def _map(self, node: ast.MapLiteral) -> Code:
        key_type: types.Type | None = None
        value_type: types.Type | None = None
        runs: list[tuple[evaluation.Run, evaluation.Run]] = []
        cost = MAP_COST
        for i, (key_node, value_node) in enumerate(node.entries):
            key, value = self.compile(key_node), self.compile(value_node)
            if BROKEN in (key, value):
                return BROKEN
            given = self._unwrapped(value_node, value.type, optional=i in node.optional)
            if given is None:
                return BROKEN
            keys = types.joined(key_type or key.type, key.type)
            values = types.joined(value_type or given, given)
            if keys is None:
                text = f"expected type '{key_type}' but found '{key.type}'"
                return self._mistake(key_node, text)
            if values is None:
                text = f"expected type '{value_type}' but found '{given}'"
                return self._mistake(value_node, text)
            if key.type not in (types.STRING, types.INT, types.UINT, types.BOOL, types.DYN):
                return self._mistake(key_node, f"unsupported map key type: {key.type}")
            key_type, value_type = keys, values
            runs.append((key.run, value.run))
            cost += key.cost + value.cost
        type_ = types.map_of(key_type or types.DYN, value_type or types.DYN)
        return Code(type_, evaluation.make_map(runs, node.optional), cost)

    def _unwrapped(self, node: ast.Expr, type_: types.Type, *, optional: bool) -> types.Type | None:
        if not optional:
            return type_
        if type_ == types.DYN:
            return types.DYN
        if type_.name != "optional_type":
            self._mistake(node, f"expected type 'optional_type({type_})' but found '{type_}'")
            return None
        return type_.params[0]

    # ---- macros

    def _loop(self, node: ast.Loop) -> Code:
        source = self.compile(node.source)
        if source is BROKEN:
            return BROKEN
        pair = len(node.names) == 2
        kinds = types.items_of(source.type, pair=pair)
        if kinds is None:
            text = f"expression of type '{source.type}' cannot be range of a comprehension (must be"
            return self._mistake(node.source, f"{text} list, map, or dynamic)")
        with self._declared(node.names, kinds) as slots:
            condition = None if node.condition is None else self.compile(node.condition)
            body = self.compile(node.body)
        if BROKEN in (body, condition):
            return BROKEN
        tested = body if node.macro in ("all", "exists", "exists_one", "filter") else condition
        if tested is not None and tested.type not in (types.BOOL, types.DYN):
            text = f"found no matching overload for '_?_:_' applied to '({tested.type}, dyn, dyn)'"
            return self._mistake(node, text)
        result = types.loop_type(node.macro, source.type, kinds, body.type)
        if result is None:
            return self._mistake(node.body, f"expected type 'map' but found '{body.type}'")
        each = body.cost + (condition.cost if condition else 0) + 3
        loop = Comprehension(
            source.run, slots, None if condition is None else condition.run, body.run, each
        )
        return Code(result, MACROS[node.macro](loop), source.cost + 1)

    @contextmanager
    def _declared(
        self, names: tuple[str, ...], kinds: tuple[types.Type, ...]
    ) -> Iterator[tuple[int, ...]]:
        """Declares variables of a macro, which hide others in its body; returns their places."""
        scope, known = self._scope, self._globals
        slots = tuple(range(self.slots, self.slots + len(names)))
        self.slots += len(names)
        self._scope = {**scope, **dict(zip(names, map(Variable, slots, kinds), strict=True))}
        self._globals = known - set(names)
        yield slots
        self._scope, self._globals = scope, known

    def _with_value(self, node: ast.WithValue) -> Code:
        source = self.compile(node.source)
        if source is BROKEN:
            return BROKEN
        if source.type.name not in ("optional_type", "dyn"):
            name = "optFlatMap" if node.flat else "optMap"
            text = f"found no matching overload for '{name}' applied to '{source.type}'"
            return self._mistake(node, text)
        inner = source.type.params[0] if source.type.params else types.DYN
        with self._declared((node.name,), (inner,)) as (slot,):
            body = self.compile(node.body)
        if body is BROKEN:
            return BROKEN
        if node.flat and body.type.name not in ("optional_type", "dyn"):
            text = f"expected type 'optional_type' but found '{body.type}'"
            return self._mistake(node.body, text)
        given, inside, flat = source.run, body.run, node.flat

        def run(env: evaluation.Env) -> Any:
            value = given(env)
            if not isinstance(value, Optional):
                raise EvalError("no such overload")
            if not value.present:
                return value
            env[slot] = value.value
            result = inside(env)
            if not flat:
                return Optional(result)
            if not isinstance(result, Optional):
                raise EvalError("no such overload")
            return result

        type_ = body.type if node.flat else types.optional_of(body.type)
        return Code(type_, run, source.cost + body.cost + 1)


# ---- compiled expressions ------------------------------------------------------------------------


@cache
def standard_library() -> Library:
    """Every function of Kubernetes' environment."""
    library = Library()
    for add in (
        add_operators,
        add_times,
        add_conversions,
        add_texts,
        add_lists,
        add_network,
        add_quantities,
        add_authorizer,
    ):
        add(library)
    return library


@attrs.frozen(eq=False)
class Program:
    """A compiled expression.

    Attributes:
        source: its text.
        type: of its result.
        used: the variables that it uses.
    """

    source: str
    type: Type
    used: frozenset[str]
    _run: Callable[[list[Any]], Any]
    _cost: int
    _slots: int

    def run(self, values: tuple[Any, ...], budget: CostBudget) -> Any:
        """The result for these values of the variables, in the order of their declaration.

        Raises:
            EvalError: there is no result.
            BudgetExceeded: it costs too much.
        """
        budget.spend(self._cost)
        env: list[Any] = [budget, *values]
        env.extend([None] * (self._slots - len(env)))
        return self._run(env)


def compile_expression(source: str, variables: Mapping[str, Type]) -> Program:
    """The program of a text.

    Args:
        source: the expression.
        variables: the available variables, with types.

    Raises:
        CompileError: the text is not an expression, or its types do not fit.
    """
    compiler = Compiler(standard_library(), variables)
    code = compiler.compile(parse(source))
    if compiler.issues:
        raise CompileError(source, compiler.issues)
    return Program(source, code.type, frozenset(compiler.used), code.run, code.cost, compiler.slots)
