"""A class that a public signature or attribute names can be imported from a public module."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections.abc import Iterator
from functools import cache
from types import ModuleType
from typing import Any

from .test_faces import FACES, GOLDEN

_GIVEN = "only made by the library and handed back to it: programs need no name for it"
_OF_QUOTA = "a step inside the quota engine, for the engine's own modules"
_OF_GROUPS = "how the built-in PodGroup reads its pods"
_OF_STORMS = "a piece of the storm's world; `trial` and `Storm` are the public way to it"
_OF_REPORTS = "a line of a `SeedReport`, which programs print"
EXEMPT = {
    "kueuelib.api.struct.WireField": "what `wire` returns to the class body that calls it",
    "kueuelib.controllers.assembly.Controllers": "for the bundled manager and its tests",
    "kueuelib.embedded.cluster.clock.WakeableClock": "`ManualClock` is the public one",
    "kueuelib.embedded.cluster.simulation.SimulatedCluster": _GIVEN,
    "kueuelib.embedded.service.ApiService": _GIVEN,
    "kueuelib.jobs.pods.compose.Composition": _OF_GROUPS,
    "kueuelib.jobs.pods.facts.GroupFacts": _OF_GROUPS,
    "kueuelib.jobs.pods.roster.GroupPod": _OF_GROUPS,
    "kueuelib.jobs.pods.roster.Roles": _OF_GROUPS,
    "kueuelib.jobs.pods.roster.Roster": _OF_GROUPS,
    "kueuelib.machinery.recurrence.EventSeries": "shared by the recorders of one process",
    "kueuelib.runtime.operator.declaration.Validates": "what a decorator returns",
    "kueuelib.runtime.operator.environment.ReconcilerEnvironment": _GIVEN,
    "kueuelib.runtime.operator.reconciled.Reconciled": "what a decorator returns",
    "kueuelib.runtime.telemetry.ControllerMetrics": _GIVEN,
    "kueuelib.runtime.telemetry.QueueSample": _GIVEN,
    "kueuelib.runtime.telemetry.QueueTimes": _GIVEN,
    "kueuelib.runtime.transport.Transport": "`connect` makes it",
    "kueuelib.scheduler.quota.cache.Tally": _OF_QUOTA,
    "kueuelib.scheduler.quota.node.Bracket": _OF_QUOTA,
    "kueuelib.scheduler.quota.node.QuotaNode": _OF_QUOTA,
    "kueuelib.scheduler.quota.snapshot.FrozenTree": _OF_QUOTA,
    "kueuelib.scheduler.quota.snapshot.Reclaimable": _OF_QUOTA,
    "kueuelib.testing.storm.environment.LawBook": _OF_STORMS,
    "kueuelib.testing.storm.environment.WorldProgram": _OF_STORMS,
    "kueuelib.testing.storm.laws.law.Tolerance": _OF_STORMS,
    "kueuelib.testing.storm.laws.law.Violation": _OF_REPORTS,
    "kueuelib.testing.storm.profiles.Profile": _OF_STORMS,
    "kueuelib.testing.storm.seed_plan.Cell": _OF_REPORTS,
    "kueuelib.testing.storm.users.acts.Scenario": _OF_STORMS,
    "kueuelib.testing.storm.world.World": _OF_STORMS,
}
"""Classes that no public module exports, each with the reason."""
TYPES = "kueuelib.types"
"""It names what the others mention. What its own classes mention needs no export."""


def _exports(face: str) -> Iterator[tuple[str, Any]]:
    module = importlib.import_module(face)
    for name in module.__all__:
        yield from _named(f"{face}.{name}", getattr(module, name))


def _named(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    if not isinstance(value, ModuleType):
        yield path, value
        return
    for name, each in vars(value).items():
        if not name.startswith("_") and getattr(each, "__module__", "") == value.__name__:
            yield f"{path}.{name}", each


@cache
def _for_type_checkers(module: str) -> dict[str, Any]:
    """What a module imports for its annotations only."""
    tree = ast.parse(inspect.getsource(importlib.import_module(module)))
    return {
        alias.asname or alias.name: getattr(importlib.import_module(str(node.module)), alias.name)
        for block in tree.body
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
        for node in block.body
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("kueuelib")
        for alias in node.names
    }


def _annotations(value: Any) -> Iterator[tuple[str, str, Any]]:
    """The module in whose words it is written, the place, and the annotation."""
    if inspect.isfunction(value):
        function = inspect.unwrap(value)
        for name, annotation in function.__annotations__.items():
            yield function.__module__, name, annotation
    elif inspect.isclass(value):
        for cls in (each for each in value.__mro__ if each.__module__.startswith("kueuelib.")):
            for name, annotation in inspect.get_annotations(cls).items():
                if not name.startswith("_"):
                    yield cls.__module__, name, annotation
            for name, member in vars(cls).items():
                if name.startswith("_") and (name != "__init__" or hasattr(cls, "__attrs_attrs__")):
                    continue
                for module, argument, annotation in _annotations(_function_of(member)):
                    yield module, f"{name}({argument})", annotation


def _function_of(member: Any) -> Any:
    if isinstance(member, property):
        return member.fget
    member = getattr(member, "__func__", getattr(member, "func", member))
    return member if inspect.isfunction(member) else None


def _classes(annotation: Any, module: str) -> Iterator[type]:
    text = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
    for node in ast.walk(ast.parse(text, mode="eval")) if text else ():
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and "-" not in text:
            yield from _classes(node.value, module)
        elif isinstance(node, ast.Name):
            home = vars(importlib.import_module(module))
            value = home.get(node.id, _for_type_checkers(module).get(node.id))
            if inspect.isclass(value) and value.__module__.startswith("kueuelib."):
                yield value


def _mentions() -> dict[str, list[str]]:
    """The classes of public signatures and attributes that are not exported, and where."""
    exported = {id(value) for face in FACES for _, value in _exports(face)}
    found: dict[str, list[str]] = {}
    for face in (each for each in FACES if each != TYPES):
        for path, value in _exports(face):
            for module, place, annotation in _annotations(value):
                for cls in _classes(annotation, module):
                    if id(cls) not in exported:
                        name = f"{cls.__module__}.{cls.__qualname__}"
                        found.setdefault(name, []).append(f"{path}: {place}")
    return found


def test_classes_of_public_signatures_can_be_imported_from_public_modules() -> None:
    missing = {name: where for name, where in _mentions().items() if name not in EXEMPT}
    assert missing == {}, f"export them from {TYPES}, or from the package that they belong to"


def test_classes_without_an_export_are_still_mentioned() -> None:
    assert EXEMPT.keys() - _mentions().keys() == set()


def test_every_name_for_annotations_is_one_that_signatures_mention() -> None:
    golden = GOLDEN.read_text(encoding="utf-8").partition(f"# {TYPES}\n")[0]
    attributes = {
        word
        for face in FACES
        if face != TYPES
        for _, value in _exports(face)
        for _, _, annotation in _annotations(value)
        for word in re.findall(r"\w+", str(annotation))
    }
    mentioned = {*re.findall(r"\w+", golden), *attributes}
    names = set(importlib.import_module(TYPES).__all__)
    assert names - mentioned == {"ItemExponential"}, "the last is the usual RateLimiter"
    assert {"Sign", "Suspend", "Validate"} <= names, "aliases, which no class above is"
