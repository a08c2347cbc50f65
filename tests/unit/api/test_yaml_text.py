"""What we print is read in the same way by YAML 1.1, in Python and in Go, and by YAML 1.2."""

from __future__ import annotations

import json
import shutil
import subprocess
from itertools import product
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from kueuelib.api.definitions import crd, crd_of
from kueuelib.api.meta import KubeObject
from kueuelib.api.struct import Struct, frozen
from kueuelib.api.yaml_text import to_yaml
from kueuelib.embedded.http.yaml_bodies import parse_yaml_stream
from kueuelib.jobs.pods.declaration import read

WORDS = ["y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan", ".nan", ".inf", "inf"]
SCALARS = [
    *(each for word in WORDS for each in (word, word.upper(), word.title())),
    *("", "~", "=", "<<", "-", "?", "1e3", "12e45", "1E3", "0o17", "0b101", "0x1F", "017", "1_000"),
    *("-_1", "+.5", "-.inf", "+.INF", "1:30", "190:20:30", "2024-01-02", "2024-01-02T03:04:05Z"),
    *(
        "2024-1-2 3:4:5.6 +01:00",
        "1.",
        ".5e3",
        "0x1p-2",
        "a: b",
        "a #b",
        "#",
        "&a",
        "*a",
        "!a",
        "%",
    ),
    *(
        "a\nb\n",
        "---\n",
        "\n---\na: b",
        " a ",
        "\t",
        "\x85",
        "\u2028",
        "\ufeff",
        "\x7f",
        "ä",
        "\U0001f600",
    ),
    *("x" * 300, "words " * 60, "'", '"', "\\"),
]
TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
NUMBER_LIKE = st.text("0123456789.:_-+eExXobnyaTZ ", max_size=12)


def readers(text: str) -> list[Any]:
    return [
        yaml.load(text, yaml.SafeLoader),
        yaml.load(text, yaml.CSafeLoader),
        parse_yaml_stream(text.encode())[0],
        read(text),
    ]


@pytest.mark.parametrize("text", SCALARS)
def test_a_text_that_looks_like_another_value_stays_a_text(text: str) -> None:
    obj = {text: text, "list": [text]}
    assert readers(to_yaml(obj)) == [obj] * 4


@given(st.dictionaries(TEXTS | NUMBER_LIKE, TEXTS | NUMBER_LIKE, max_size=4))
@example({"y": "1e3"})
def test_every_reader_reads_what_was_written(obj: dict[str, str]) -> None:
    assert readers(to_yaml(obj)) == [obj] * 4


def test_other_values_stay_what_they_are() -> None:
    obj = {"a": 1, "b": -1.5, "c": True, "d": None, "e": [], "f": {}, "g": 2**40, "h": [{"i": []}]}
    assert readers(to_yaml(obj)) == [obj] * 4


def test_usual_texts_are_not_quoted() -> None:
    usual = ["--health-address", "100m", "128Mi", "example.com/v1", "kueue-system", "self.x <= 5"]
    assert to_yaml(usual) == "".join(f"- {each}\n" for each in usual)


def test_kubectl_reads_what_was_written() -> None:
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("needs kubectl")
    short = ["".join(each) for size in (1, 2, 3) for each in product("019e.:_-+xyn~", repeat=size)]
    data = {text: text for text in (*SCALARS, *short)}
    obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "y"}, "data": data}
    asked = [kubectl, "label", "--local", "-f", "-", "y=n", "-o", "json"]
    answer = subprocess.run(asked, input=to_yaml(obj).encode(), capture_output=True, check=True)
    assert json.loads(answer.stdout)["data"] == data


@frozen
class Spec(Struct):
    """A place."""

    x: int = 0
    y: int = 0


@crd("example.com", "v1", plural="points")
@frozen
class Point(KubeObject):
    """A point."""

    spec: Spec = Spec()


def test_no_field_of_a_class_is_lost_by_its_name() -> None:
    definition = to_yaml(crd_of(Point))
    for found in readers(definition)[2:]:
        schema = found["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        assert set(schema["properties"]["spec"]["properties"]) == {"x", "y"}
