"""Writes a small project with passing tests, to start an operator, a kind of jobs, or a check."""

from __future__ import annotations

import re
import sys
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from string import Template

from kueuelib import __version__
from kueuelib.errors import ConfigError

KINDS = ("operator", "job", "check")
_NAME = re.compile(r"[a-z]([-a-z0-9]{0,40}[a-z0-9])?")


def run(kind: str, name: str, folder: Path) -> list[Path]:
    """Write a project into `folder/name`.

    Args:
        kind: one of `KINDS`.
        name: lower-case letters, digits and '-'.
        folder: where the project's folder is made.

    Returns:
        the files that were written.

    Raises:
        ConfigError: the name is not valid or that of a module, or the folder exists or cannot be
            created.
    """
    if not _NAME.fullmatch(name):
        raise ConfigError(
            name or "NAME", "is not a valid name", "use lower-case letters, digits and '-'"
        )
    module = name.replace("-", "_")
    if module in sys.stdlib_module_names or find_spec(module) is not None:
        problem = f"would hide Python's module {module}"
        raise ConfigError(name, problem, "choose another name")
    target = folder / name
    try:
        target.mkdir(parents=True)
    except FileExistsError as error:
        raise ConfigError(str(target), "exists", "choose another name") from error
    except OSError as error:
        raise ConfigError(str(target), str(error.strerror), "choose another folder") from error
    words = {
        "name": name,
        "module": module,
        "Kind": "".join(part.capitalize() for part in name.split("-")),
        "plural": name.replace("-", "") + "s",
        "version": __version__,
    }
    written = []
    for source in _sources(kind):
        text = Template(source.read_text(encoding="utf-8")).substitute(words)
        path = target / Template(source.name.removesuffix(".txt")).substitute(words)
        path.write_text(text, encoding="utf-8")
        written.append(path)
    return written


def _sources(kind: str) -> list[Path]:
    templates = Path(str(files("kueuelib.cli.new"))) / "templates"
    return sorted((*templates.glob("*.txt"), *(templates / kind).glob("*.txt")))
