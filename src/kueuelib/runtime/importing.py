"""Imports modules of others, and reports what is wrong with them in one line.

Whatever such a module raises is its author's mistake, not ours: the answer is the file, the line,
what was raised there and what to do, and no traceback of kueuelib.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from kueuelib.errors import ConfigError

T = TypeVar("T")

_OURS = str(Path(__file__).parents[1])
_PYTHONS = os.path.dirname(os.__file__)  # noqa: PTH120 - compared as a text


def module_at(where: str) -> ModuleType:
    """A module by its name, or by the path of its file.

    Args:
        where: `training`, `team.training` or `jobs/training.py`; a module is looked for in the
            current folder too.

    Raises:
        ConfigError: there is none, or it cannot be imported, whatever it raises.
    """
    if where.endswith(".py"):
        return _file(Path(where))
    if not all(where.split(".")):
        problem = "is not the name of a module" if where else "no module is named"
        raise ConfigError(where or "MODULE", problem, "give a module or the path of a .py file")
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    fix = "correct it, or give a module that Python finds, or a .py file"
    return loaded(where, lambda: importlib.import_module(where), fix)


def loaded(subject: str, load: Callable[[], T], fix: str = "correct it") -> T:
    """The result of a function that runs other people's code.

    Args:
        subject: what is loaded, for the error.
        load: the function.
        fix: what to do when it fails.

    Raises:
        ConfigError: the code raises anything, or ends the process; the message says where, in one
            line.
    """
    try:
        return load()
    except (Exception, SystemExit) as error:
        name = subject.partition(":")[0]
        if isinstance(error, ModuleNotFoundError) and error.name == name:
            module, _, inner = name.rpartition(".")
            if hasattr(sys.modules.get(module), inner):  # imported on the way
                fix = f"write {module}:{inner}"
            raise ConfigError(subject, f"cannot be imported: {error}", fix) from error
        if isinstance(error, ConfigError):
            place = "" if ", line " in error.subject else _place(error)
            problem = f"cannot be imported: {place}{error.subject}: {error.problem}"
            raise ConfigError(subject, problem, error.fix) from error
        problem = f"cannot be imported: {_place(error)}{_said(error)}"
        raise ConfigError(subject, problem, fix) from error


def _file(path: Path) -> ModuleType:
    if not os.path.isfile(path):  # noqa: PTH113 - a path that cannot be is none either
        raise ConfigError(str(path), "No such file", "give the path of a Python file")
    if str(path.parent.resolve()) not in sys.path:
        sys.path.insert(0, str(path.parent.resolve()))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    before = sys.modules.get(path.stem)
    sys.modules[path.stem] = module
    done = False
    try:
        loader = spec.loader
        loaded(str(path), lambda: loader.exec_module(module))
        done = True
    finally:
        if not done:
            _put_back(path.stem, before)
    return module


def _put_back(name: str, before: ModuleType | None) -> None:
    if before is None:
        sys.modules.pop(name, None)
    else:
        sys.modules[name] = before


def _place(error: BaseException) -> str:
    """The file and line that the author can correct; empty when no code of theirs ran."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}, line {error.lineno or 1}: "
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [
        frame
        for frame in frames
        if not frame.filename.startswith((_OURS + os.sep, "<")) and not _is_pythons(frame.filename)
    ]
    return f"{theirs[-1].filename}, line {theirs[-1].lineno}: " if theirs else ""


def _is_pythons(file: str) -> bool:
    return file.startswith(_PYTHONS + os.sep) and "site-packages" not in file


def _said(error: BaseException) -> str:
    if isinstance(error, SystemExit):
        return f"it ends the process with {error.code!r}"
    if isinstance(error, SyntaxError):
        return f"{type(error).__name__}: {error.msg}"
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def name_in(module: Any, name: str) -> Any:
    """The value under a dotted name in a module; None if there is none."""
    value = module
    for part in name.split("."):
        value = getattr(value, part, None)
    return value
