"""The page of all configuration keys is up to date, and says of every key what becomes of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import kueuelib
from kueuelib.app.configuration import Configuration, parse_configuration
from kueuelib.app.configuration_rules import MISSING
from kueuelib.app.reloading import LIVE
from kueuelib.errors import ConfigError

from .configuration_table import ONLY_V1BETA1, PAGE, REFUSED, keys, page

DEFINITIONS = {"configuration.py", "configuration_rules.py"}
SOURCES = [
    path.read_text()
    for path in Path(kueuelib.__file__).parent.rglob("*.py")
    if path.name not in DEFINITIONS
]


def parse(path: str, value: Any, version: str) -> Configuration:
    content: dict[str, Any] = {"apiVersion": f"config.kueue.x-k8s.io/{version}"}
    block = content
    *parents, last = path.split(".")
    for name in parents:
        block = block.setdefault(name, {})
    block[last] = value
    return parse_configuration({**content, "kind": "Configuration"}, "test")


def test_the_page_is_what_is_generated() -> None:
    command = "python tests/unit/docs/configuration_table.py > docs/configuration.md"
    assert PAGE.read_text() == page(), f"run `{command}`"


@pytest.mark.parametrize("path", [*REFUSED, *MISSING])
def test_what_the_page_calls_refused_is_refused_with_its_name(path: str) -> None:
    value = REFUSED[path][1] if path in REFUSED else {}
    for version in ("v1beta1", "v1beta2"):
        with pytest.raises(ConfigError) as refused:
            parse(path, value, version)
        assert path.split(".", maxsplit=1)[0] in str(refused.value)
        assert "unknown key" not in str(refused.value)


@pytest.mark.parametrize("path", [path for path, _ in keys(Configuration)])
def test_an_honoured_key_is_read_by_something(path: str) -> None:
    if path in REFUSED:
        return
    name = path.rpartition(".")[2]
    attribute = "".join(f"_{one.lower()}" if one.isupper() else one for one in name)
    derived = {"external_frameworks": "external_kinds", "enable": ".enable"}
    text = derived.get(attribute, f".{attribute}")
    assert any(text in source for source in SOURCES), f"{path} is read by nothing"


@pytest.mark.parametrize("path", ["waitForPodsReady.enable", "fairSharing.enable"])
def test_a_key_of_one_version_is_unknown_in_the_other(path: str) -> None:
    assert path in ONLY_V1BETA1
    assert parse(path, False, "v1beta1")
    with pytest.raises(ConfigError, match=f"{path} is not a key of"):
        parse(path, False, "v1beta2")


def test_keys_that_change_at_once_are_keys() -> None:
    assert {path for path, _ in keys(Configuration)} >= LIVE
