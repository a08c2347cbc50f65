"""We use what other packages document, so that their next release does not break ours.

A name with an underscore that is not ours is found where it is read, called, replaced, overridden
or imported; also modules that their packages do not document. What aiohttp names without an
underscore, but describes on no page, is listed.
"""

from __future__ import annotations

import ast
import asyncio
import importlib
import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

SRC = Path(__file__).parents[2] / "src"
LOOP = "what a subclass of asyncio.BaseEventLoop has to know: tests/storm run on every Python"
ALLOWED = {
    "kueuelib.testing.storm.loop: StormLoop._process_events": LOOP,
    "kueuelib.testing.storm.loop: StormLoop._run_once": LOOP,
    "kueuelib.testing.storm.loop: StormLoop._stopping": LOOP,
    "kueuelib.testing.storm.loop: StormLoop._write_to_self": LOOP,
}
"""Private parts that are used after all, each with its reason."""
DOCUMENTED = {"_exit", "_replace", "_asdict", "_fields", "_make"}
"""Names of `os` and of named tuples."""
INNER = re.compile(
    r"aiohttp\.(?!web$|abc$)|asyncio\.|prometheus_client\.(?!core$|registry$)|yaml\."
)
"""Modules that belong to the inside of their packages."""
PLAIN = ("kueuelib", "builtins", "typing", "abc", "enum", "collections")
"""Modules of classes without private parts, or with our own."""
ADAPTERS = "kueuelib.integrations."
"""They override parts of packages that have no public place for it, in versions that they name."""
PRIVATE = re.compile(r"_(?!_)\w+")
CALLED: dict[type, tuple[str, ...]] = {
    web.RequestHandler: (
        *("manager", "loop", "access_log", "auto_decompress", "keepalive_timeout"),
        *("lingering_time", "logger"),
    ),
    web.BaseRequest: (
        *("message", "payload", "protocol", "payload_writer", "task", "loop", "client_max_size"),
    ),
    web.Server: ("handler", "request_factory", "handler_cancellation"),
}
"""What constructors of aiohttp's server are given; no page of its documentation says so."""
READ = {
    web.RequestHandler: {"close", "handle_error", "log_access", "transport"},
    web.BaseRequest: {"protocol"},
    web.Server: {"connections", "request_factory"},
}
"""Attributes that no page describes, either; the first one's are called by aiohttp, too."""
NAMED = ("DefaultResolver", "HttpVersion11", "web.RequestPayloadError")
"""Further names of aiohttp that no page describes."""
LAST_SEEN = "3.14.5"
"""The version of aiohttp in which all of them were as we need them."""


def _private(name: str) -> bool:
    return bool(PRIVATE.fullmatch(name)) and name not in DOCUMENTED and name != "_"


def _own_names(nodes: Sequence[ast.AST]) -> set[str]:
    """Private names that the module gives to its own classes, functions and variables."""
    names: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif (
            isinstance(node, ast.Attribute)
            and isinstance(node.ctx, ast.Store)
            and isinstance(node.value, ast.Name)
            and node.value.id in ("self", "cls")
        ):
            names.add(node.attr)
    return names


def _imported(nodes: Sequence[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and not node.level and node.module != "__future__":
            home = node.module or ""
            if not home.startswith("kueuelib"):
                yield home
                yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if "kueuelib" not in alias.name)


def _read(nodes: Sequence[ast.AST]) -> Iterator[str]:
    own = _own_names(nodes)
    for node in nodes:
        if isinstance(node, ast.Attribute):
            name, of = node.attr, node.value
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in ("getattr", "setattr", "hasattr", "delattr")
            and isinstance(node.args[1], ast.Constant)
        ):
            name, of = str(node.args[1].value), node.args[0]
        else:
            continue
        if _private(name) and not (name in own or _is_self(of)):
            yield ast.unparse(node)


def _is_self(node: ast.AST) -> bool:
    """Whether it is an object of the class around: `_inherited` looks at those."""
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


@cache
def _parts_of(foreign: type) -> frozenset[str]:
    """The private names of a class that is not ours."""
    names = set(vars(foreign)) | set(vars(foreign).get("__slots__", ()))
    with suppress(OSError, TypeError):  # written in C
        names |= set(re.findall(r"self\.(_\w+)", inspect.getsource(foreign)))
    return frozenset(filter(_private, names))


@pytest.fixture(scope="module")
def heirs(nodes: Mapping[str, Sequence[ast.AST]]) -> dict[str, set[str]]:
    """The classes that inherit from a class of another package, by module."""
    bases = {
        (module, node.name): {ast.unparse(base).partition("[")[0] for base in node.bases}
        for module, parts in nodes.items()
        if not module.startswith(ADAPTERS)
        for node in parts
        if isinstance(node, ast.ClassDef)
    }
    foreign = {
        alias.asname or alias.name
        for parts in nodes.values()
        for node in parts
        if isinstance(node, ast.Import)
        or (isinstance(node, ast.ImportFrom) and not (node.module or "").startswith(PLAIN))
        for alias in node.names
    }
    heirs: dict[str, set[str]] = {}
    while True:
        found = [
            (module, name)
            for (module, name), of in bases.items()
            if any(base in foreign or base.partition(".")[0] in foreign for base in of)
        ]
        if not found:
            return heirs
        for module, name in found:
            heirs.setdefault(module, set()).add(name)
            foreign.add(name)
            del bases[module, name]


def _inherited(module: str, nodes: Sequence[ast.AST], heirs: set[str]) -> Iterator[str]:
    for node in nodes:
        if not isinstance(node, ast.ClassDef) or node.name not in heirs:
            continue
        cls = getattr(importlib.import_module(module), node.name, None)
        if not isinstance(cls, type):
            continue
        foreign = {
            name
            for base in cls.__mro__
            if not base.__module__.startswith(PLAIN)
            for name in _parts_of(base)
        }
        used = {
            each.attr
            for each in ast.walk(node)
            if isinstance(each, ast.Attribute) and isinstance(each.value, ast.Name | ast.Call)
        }
        used |= {each.name for each in node.body if isinstance(each, ast.FunctionDef)}
        yield from (f"{node.name}.{name}" for name in sorted(used & foreign))


def private_parts(module: str, nodes: Sequence[ast.AST], heirs: set[str]) -> set[str]:
    """The private parts of others that a module uses."""
    imported = {
        each
        for each in _imported(nodes)
        if INNER.match(each) or any(map(_private, each.split(".")))
    }
    used = {*imported, *_read(nodes), *_inherited(module, nodes, heirs)}
    return {f"{module}: {each}" for each in used}


def test_no_private_parts_of_others_are_used(
    nodes: Mapping[str, Sequence[ast.AST]], heirs: dict[str, set[str]]
) -> None:
    """Each use that is allowed has its reason in `ALLOWED`; other entries are left over."""
    used = [
        private_parts(module, parts, heirs.get(module, set()))
        for module, parts in nodes.items()
        if not module.endswith("__main__")
    ]
    assert set().union(*used) == set(ALLOWED)


def test_what_our_connections_take_from_aiohttp_is_listed(
    nodes: Mapping[str, Sequence[ast.AST]], heirs: dict[str, set[str]]
) -> None:
    """Only they inherit from a class that its documentation does not describe."""
    documented = set(dir(asyncio.Protocol))
    used: set[str] = set()
    for module, names in heirs.items():
        for node in nodes[module]:
            if not isinstance(node, ast.ClassDef) or node.name not in names:
                continue
            cls = getattr(importlib.import_module(module), node.name, None)
            if not (isinstance(cls, type) and issubclass(cls, web.RequestHandler)):
                continue
            inner = list(ast.walk(node))
            own = [each for each in inner if isinstance(each, ast.Attribute)]
            used |= {each.attr for each in own if ast.unparse(each.value) in ("self", "super()")}
            used |= {each.name for each in inner if isinstance(each, ast.FunctionDef)}
    theirs = {name for name in dir(web.RequestHandler) if not name.startswith("_")} - documented
    assert used & theirs == READ[web.RequestHandler]


async def test_undocumented_names_of_aiohttp_are_as_we_need_them() -> None:
    """If not: mend what the traceback of other tests shows; until then, forbid that version of
    aiohttp in `pyproject.toml`.
    """

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        raise NotImplementedError

    server = web.Server(handle)
    for cls, names in CALLED.items():
        missing = set(names) - set(inspect.signature(cls).parameters)
        assert not missing, f"{cls} took {missing} in aiohttp {LAST_SEEN}"
    for owner, attributes in READ.items():
        present = {*dir(owner), *(dir(server) if owner is web.Server else ())}
        assert attributes <= present, f"{owner} had {attributes} in aiohttp {LAST_SEEN}"
    text = "".join(path.read_text() for path in SRC.rglob("*.py"))
    for name in NAMED:
        assert name.rpartition(".")[2] in text, f"{name} is not used any more"
        owner = web if name.startswith("web.") else aiohttp
        assert hasattr(owner, name.rpartition(".")[2]), f"{name} was in aiohttp {LAST_SEEN}"


@pytest.mark.parametrize("cls", CALLED, ids=lambda cls: cls.__name__)
def test_positions_of_undocumented_parameters_are_as_we_fill_them(cls: type) -> None:
    """`BaseRequest` is called by position; the others by name, but for what comes first."""
    order = list(inspect.signature(cls).parameters)
    by_position = 6 if cls is web.BaseRequest else 1
    assert tuple(order[:by_position]) == CALLED[cls][:by_position]
