"""The public names of the library, and their signatures.

`python tests/unit/test_faces.py` writes `faces.txt` again.
"""

from __future__ import annotations

import ast
import enum
import importlib
import inspect
import pkgutil
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, UnionType
from typing import Any

import pytest

GOLDEN = Path(__file__).with_name("faces.txt")
UPDATE = "if this is meant, run: python tests/unit/test_faces.py"
FACES = (
    "kueuelib",
    *(
        f"kueuelib.{name}"
        for name in (
            "runtime",
            "jobs",
            "controllers",
            "scheduler",
            "checks",
            "testing",
            "embedded",
            "sync",
            "integrations",
            "types",
        )
    ),
)


def described() -> str:
    """All faces as text, one name or method per line."""
    return "\n".join(line for face in FACES for line in _face(face)) + "\n"


def _face(face: str) -> Iterator[str]:
    module = importlib.import_module(face)
    yield f"# {face}"
    for name in sorted(module.__all__):
        yield from _entry(name, getattr(module, name))
    yield ""


def _entry(name: str, value: Any) -> Iterator[str]:
    if inspect.isclass(value):
        bases = ", ".join(base.__name__ for base in value.__bases__ if base is not object)
        yield f"class {name}({bases})" if bases else f"class {name}"
        if issubclass(value, enum.Enum):
            yield from (f"    {member.name} = {member.value!r}" for member in value)
            return
        yield from (f"    {line}" for line in _members(value))
    elif inspect.isfunction(value):
        yield f"{_async(value)}{name}{_signature(value)}"
    elif isinstance(value, ModuleType):
        yield f"module {name}"
        yield from (f"    {each}" for each in sorted(vars(value)) if _is_own(value, each))
    elif isinstance(value, UnionType):
        yield f"{name}: a union"
    else:
        yield f"{name}: {type(value).__name__}"


def _is_own(module: ModuleType, name: str) -> bool:
    value = getattr(module, name)
    if name.startswith("_") or isinstance(value, ModuleType):
        return False
    own = getattr(value, "__module__", module.__name__) == module.__name__
    return own or name.isupper()


def _members(cls: type) -> Iterator[str]:
    if "__init__" in vars(cls):
        yield f"__init__{_signature(cls.__init__)}"
    for name, value in sorted(vars(cls).items()):
        if name.startswith("_"):
            continue
        function = value.__func__ if isinstance(value, classmethod | staticmethod) else value
        if isinstance(value, property):
            yield name
        elif inspect.isfunction(function):
            yield f"{_async(function)}{name}{_signature(function)}"


def _async(function: Any) -> str:
    return "async " if inspect.iscoroutinefunction(function) else ""


def _signature(function: Any) -> str:
    text = str(inspect.signature(function))
    text = re.sub(r"<([\w. ]+) at 0x[0-9a-f]+>", r"<\1>", text)
    text = re.sub(r"<function [\w.<>]*<lambda> at 0x[0-9a-f]+>", "<lambda>", text)
    return re.sub(r"<function [\w.<>]*?(\w+)>", r"\1", text)


def test_the_public_names_and_signatures_are_those_of_the_golden_file() -> None:
    assert described() == GOLDEN.read_text(encoding="utf-8"), UPDATE


@pytest.mark.parametrize("face", FACES)
def test_type_checkers_see_the_names_that_the_interpreter_sees(face: str) -> None:
    module = importlib.import_module(face)
    tree = ast.parse(inspect.getsource(module))
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    seen: dict[str, Any] = {}
    for node in block.body:
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                home = importlib.import_module(str(node.module))
                if not hasattr(home, alias.name):
                    importlib.import_module(f"{node.module}.{alias.name}")
                if alias.asname is not None:
                    seen[alias.asname] = getattr(home, alias.name)
        else:
            assert isinstance(node, ast.Assign)
            names = re.findall(r"\w+", ast.unparse(node.targets[0]))
            seen |= {name: getattr(module, name) for name in names}
    assert sorted(seen) == module.__all__
    assert {name: getattr(module, name) for name in seen} == seen


@pytest.mark.parametrize("face", FACES)
def test_no_public_name_is_hidden_by_a_module_of_its_package(face: str) -> None:
    module = importlib.import_module(face)
    modules = {each.name for each in pkgutil.iter_modules(getattr(module, "__path__", ()))}
    hidden = [
        name
        for name in modules & set(module.__all__)
        if getattr(module, name) is not sys.modules.get(f"{face}.{name}")
    ]
    assert hidden == []


@pytest.mark.parametrize("face", FACES)
def test_every_public_class_and_function_has_a_docstring(face: str) -> None:
    module = importlib.import_module(face)
    silent = []
    for name in module.__all__:
        value = getattr(module, name)
        if (inspect.isclass(value) or inspect.isroutine(value)) and not inspect.getdoc(value):
            silent.append(name)
        if inspect.isclass(value) and value.__module__.startswith("kueuelib."):
            for member, function in vars(value).items():
                public = inspect.isfunction(function) or isinstance(function, property)
                if public and not member.startswith("_") and not inspect.getdoc(function):
                    silent.append(f"{name}.{member}")
    assert silent == []


def test_completion_of_the_runtime_shows_at_most_60_names_each_with_a_docstring() -> None:
    module = importlib.import_module("kueuelib.runtime")
    for name in module.__all__:
        getattr(module, name)  # imports submodules, which must not be listed
    shown = [name for name in dir(module) if not name.startswith("_")]
    assert len(shown) <= 60
    assert [name for name in shown if not inspect.getdoc(getattr(module, name))] == []


@pytest.mark.parametrize("face", FACES)
def test_importing_a_face_imports_nothing_else_of_the_library(face: str) -> None:
    program = f"import sys, {face}; print(*sorted(m for m in sys.modules if 'kueuelib' in m))"
    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert set(found.stdout.split()) <= {"kueuelib", "kueuelib.lazy_exports", face}


def test_an_unknown_name_is_refused_as_by_any_module() -> None:
    runtime = importlib.import_module("kueuelib.runtime")
    with pytest.raises(AttributeError, match="module 'kueuelib.runtime' has no attribute 'Nope'"):
        runtime.Nope  # noqa: B018
    assert "Operator" in dir(runtime)


def test_no_name_means_different_things_in_two_faces_but_those_of_whole_programs() -> None:
    meanings: dict[str, set[int]] = {}
    for face in (each for each in FACES if each != "kueuelib.sync"):
        module = importlib.import_module(face)
        for name in module.__all__:
            meanings.setdefault(name, set()).add(id(getattr(module, name)))
    shared = [name for name, values in meanings.items() if len(values) > 1]
    assert sorted(shared) == ["run", "serve", "setup"]


if __name__ == "__main__":
    GOLDEN.write_text(described(), encoding="utf-8")
