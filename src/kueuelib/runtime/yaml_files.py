"""YAML files that a user wrote: bounded in size, with errors of one line."""

from __future__ import annotations

from collections.abc import Iterator
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
        return list(_constructed(_LOADER(text), source))
    except RecursionError as error:
        raise ConfigError(source, "malformed YAML: nested too deeply", fix) from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" in line {mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or "it cannot be parsed"
        raise ConfigError(source, f"malformed YAML{where}: {problem}", fix) from error


def _constructed(loader: Any, source: str) -> Iterator[Any]:
    """The documents of a loader.

    Raises:
        ConfigError: a mapping has a key twice, and one of the two would be lost.
    """
    try:
        while loader.check_node():
            node = loader.get_node()
            _check_keys(node, source)
            yield loader.construct_document(node)
    finally:
        loader.dispose()


def _check_keys(root: yaml.Node, source: str) -> None:
    nodes, seen = [root], set[int]()
    while nodes:
        node = nodes.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            nodes += node.value
        if isinstance(node, yaml.MappingNode):
            lines: dict[tuple[str, str], int] = {}
            for key, value in node.value:
                nodes.append(value)
                if isinstance(key, yaml.ScalarNode):
                    name, line = (key.tag, key.value), key.start_mark.line + 1
                    if name in lines:
                        problem = f"key {key.value} in line {line} is also in line {lines[name]}"
                        raise ConfigError(source, problem, "leave one of them out")
                    lines[name] = line


def _bounded(content: T, source: str) -> T:
    if len(content) > MOST_BYTES:
        problem = f"is larger than {MOST_BYTES >> 20} MiB"
        raise ConfigError(source, problem, "give the file that was meant, or split it")
    return content
