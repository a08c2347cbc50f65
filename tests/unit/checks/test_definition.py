"""Mistakes in a decorator or a package are told at once: what, and how to mend it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kueuelib.api.meta import Resource
from kueuelib.checks import Ready, Verdict, Workload, check
from kueuelib.checks.definition import GROUP, installed
from kueuelib.errors import ConfigError

NAME = "example.com/test"


async def fine(workload: Workload, parameters: Any) -> Verdict:
    return Ready()


async def one_argument(workload: Workload) -> Verdict:
    return Ready()


async def yielded(workload: Workload, parameters: Any) -> Any:
    yield Ready()


def also_yielded(workload: Workload) -> Any:
    yield None


class Yielding:
    """An object that can be called."""

    async def __call__(self, workload: Workload, parameters: Any) -> Any:
        yield Ready()


wrong: Any = check
"""Without its types: people do not always use a type checker."""


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (
            lambda: wrong(fine),
            "check 'fine': is decorated without the name of its controller",
        ),
        (lambda: wrong(""), "check '': is not a controller name"),
        (lambda: wrong(5), "check 5: is not a controller name"),
        (lambda: wrong("budget"), "write a domain and a path"),
        (lambda: wrong("odd name!/x"), "write a domain and a path"),
        (lambda: wrong("example.com/" + "x" * 380), "has 392 characters; use at most 316"),
        (lambda: wrong(NAME, timeout="5"), "timeout is of type str; give seconds above 0"),
        (lambda: wrong(NAME, timeout=None), "timeout is of type NoneType"),
        (lambda: wrong(NAME, timeout=float("nan")), "timeout=nan is not a time"),
        (lambda: wrong(NAME, interval=0), "interval=0 is not a time"),
        (lambda: wrong(NAME, recheck=float("inf")), "recheck=inf is not a time"),
        (lambda: wrong(NAME, concurrency=0), "concurrency=0 allows no calls"),
        (lambda: wrong(NAME, concurrency=2.5), "concurrency is of type float"),
        (lambda: wrong(NAME, parameters="budgets"), "parameters is of type str; give a Resource"),
        (
            lambda: wrong(NAME, parameters=Resource("", "v1", "maps", "ConfigMap", True)),
            "parameters: no AdmissionCheck can name a ConfigMap of the core group",
        ),
        (lambda: wrong(NAME, serialize="namespace"), "serialize cannot be called"),
        (lambda: wrong(NAME, serialize=one_argument), "serialize is async; give a function that"),
        (lambda: wrong(NAME, serialize=also_yielded), "also_yielded is a generator"),
        (lambda: wrong(NAME, serialize=lambda: 0), "give it 1 argument: workload"),
        (lambda: wrong(NAME, release=also_yielded), "also_yielded is a generator; write return"),
        (lambda: wrong(NAME)(yielded), f"check {NAME!r}: yielded is a generator; write return"),
        (lambda: wrong(NAME)(Yielding()), "the function is a generator"),
        (lambda: wrong(NAME)(one_argument), "give it 2 arguments: workload, parameters"),
        (lambda: wrong(NAME)(5), "is given 5; give it a function"),
        (lambda: wrong(NAME, release=5), "is given 5; give it a function"),
        (lambda: wrong(NAME, release=fine), "give it 1 argument: workload"),
    ],
)
def test_a_mistake_in_the_decorator_is_told_at_once(make: Callable[[], Any], told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        make()
    assert told in str(caught.value)


def test_whatever_takes_two_arguments_can_be_decorated() -> None:
    class Callables:
        async def method(self, workload: Workload, parameters: Any, *, more: int = 0) -> Verdict:
            return Ready()

    for function in (fine, Callables().method, lambda *_: Ready(), max):
        assert check("a.example/b/c", recheck=1)(function).function is function


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("import nothing_of_that_name", ", broken:it: cannot be imported: "),
        ("def (", "broken.py, line 1: SyntaxError"),
        ("import sys; sys.exit('usage: broken')", "it ends the process with 'usage: broken'"),
        ("raise ValueError('no licence')", "broken.py, line 1: ValueError: no licence"),
        ("it = 5", "broken:it is not a check; decorate it with @check, or remove it"),
        (
            "from kueuelib.checks import check\nit = check('example.com/other')(lambda *_: None)",
            "broken:it calls itself example.com/other; give the entry point and the check the same",
        ),
    ],
)
def test_a_broken_package_is_named_with_the_way_to_get_rid_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, told: str
) -> None:
    (tmp_path / "broken.py").write_text(source)
    meta = tmp_path / "broken_check-1.0.dist-info"
    meta.mkdir()
    (meta / "METADATA").write_text("Metadata-Version: 2.1\nName: broken-check\nVersion: 1.0\n")
    (meta / "entry_points.txt").write_text(f"[{GROUP}]\nexample.com/it = broken:it\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "broken", raising=False)
    with pytest.raises(ConfigError) as caught:
        installed()
    sys.modules.pop("broken", None)
    text = str(caught.value)
    assert text.startswith('check "example.com/it" of the package broken-check')
    assert told in text
    assert text.endswith("or remove it: pip uninstall broken-check")
