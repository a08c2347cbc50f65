"""YAML files that a user wrote: bounded in size, with errors of one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, TypeVar

import yaml

from kueuelib.errors import ConfigError

MOST_BYTES: Final = 4 * 2**20
"""A larger file is probably the wrong one, and takes minutes to parse."""
T = TypeVar("T", str, bytes)
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read_text(path: Path, fix: str) -> str:
    """The text of a file.

    Args:
        path: the file; a pipe is fine.
        fix: what to do about a file that cannot be read.

    Raises:
        ConfigError: it cannot be read, is too large, or is not text.
    """
    try:
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
        return _bounded(content, str(path)).decode()
    except OSError as error:
        raise ConfigError(str(path), error.strerror or str(error), fix) from error
    except UnicodeDecodeError as error:
        raise ConfigError(str(path), "is not UTF-8 text", fix) from error


def documents(text: str, source: str, fix: str = "correct the file") -> list[Any]:
    """The documents in a text.

    Args:
        text: YAML or JSON.
        source: what to call it in errors.
        fix: what to do about malformed YAML.

    Raises:
        ConfigError: it is malformed, nested too deeply, or too large.
    """
    _bounded(text, source)
    try:
        return list(yaml.load_all(text, Loader=_LOADER))
    except RecursionError as error:
        raise ConfigError(source, "malformed YAML: nested too deeply", fix) from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" in line {mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or "it cannot be parsed"
        raise ConfigError(source, f"malformed YAML{where}: {problem}", fix) from error


def _bounded(content: T, source: str) -> T:
    if len(content) > MOST_BYTES:
        problem = f"is larger than {MOST_BYTES >> 20} MiB"
        raise ConfigError(source, problem, "give the file that was meant, or split it")
    return content
