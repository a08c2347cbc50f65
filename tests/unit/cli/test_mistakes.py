"""Every mistake in a command line is one line that names the option and the fix."""

from __future__ import annotations

import pathlib
import sys
from collections.abc import Iterator

import click
import pytest

from kueuelib.cli import main
from kueuelib.cli.syntax import app


def said(arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: object) -> str:
    """The one line of a command that cannot work."""
    assert isinstance(capsys, pytest.CaptureFixture)
    monkeypatch.setattr(sys, "argv", ["kueuelib", *arguments])
    with pytest.raises(SystemExit) as left:
        main()
    told = capsys.readouterr()
    assert (left.value.code, told.out) == (2, ""), told
    (line,) = told.err.splitlines()
    return line


Path = tuple[str, ...]
ALONE = ("--changes",)
"""Options whose value may be left out."""


def commands(group: click.Group = app, *path: str) -> Iterator[tuple[Path, click.Command]]:
    """All commands, those of commands too."""
    for name, command in group.commands.items():
        yield (*path, name), command
        if isinstance(command, click.Group):
            yield from commands(command, *path, name)


def typed() -> Iterator[tuple[list[str], str]]:
    """Mistakes, each with what its line has to name."""
    for path, command in commands():
        yield [*path, "--no-such-option"], "unknown option --no-such-option"
        for param in command.params:
            if isinstance(param, click.Option):
                name = max(param.opts, key=len)
                if param.is_flag:
                    yield [*path, f"{name}=x"], f"{name} takes no value; write {name} alone"
                    continue
                if name not in ALONE:
                    yield [*path, name], f"{name} needs a value; write {name} "
                kind = param.type
                if isinstance(kind, click.Choice):
                    yield [*path, name, "\u2603"], f"{name}: '\u2603' is not one of"
                elif isinstance(kind, click.IntRange | click.FloatRange):
                    yield [*path, name, "many"], f"{name}: 'many' is not a valid"
            elif param.required:
                yield [*path], "is missing; write kueuelib"
        if not isinstance(command, click.Group) and all(one.nargs == 1 for one in command.params):
            kinds = (one.type for one in command.params if isinstance(one, click.Argument))
            given = [kind.choices[0] if isinstance(kind, click.Choice) else "x" for kind in kinds]
            yield [*path, *given, "more"], "unexpected extra argument (more)"


@pytest.mark.parametrize(("arguments", "wanted"), list(typed()), ids=str)
def test_a_mistake_is_one_line_with_the_fix(
    arguments: list[str],
    wanted: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    line = said(arguments, monkeypatch, capsys)
    assert line.startswith("kueuelib ")
    assert wanted in line
    assert line.partition("; ")[2]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("instal", "kueuelib: unknown command instal; did you mean install or uninstall?"),
        ("xyzzy", "kueuelib: unknown command xyzzy; see kueuelib --help"),
        ("install --prin", "kueuelib install: unknown option --prin; did you mean --print?"),
        ("report --port x", "kueuelib report: --port: 'x' is not a valid integer range; write an "),
        ("report --port 99999", "write an integer from 0 to 65535"),
        ("report --port", "kueuelib report: --port needs a value; write --port NUMBER"),
        (
            "pending extra",
            "kueuelib pending: got unexpected extra argument (extra); write kueuelib",
        ),
        ("simulate", "kueuelib simulate: TRACE... is missing; write kueuelib simulate [OPTIONS] "),
        ("apiserver", "kueuelib apiserver: --kubeconfig is missing; write kueuelib apiserver "),
        ("--nope", "kueuelib: unknown option --nope"),
    ],
)
def test_the_line_says_what_to_write(
    text: str, wanted: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert wanted in said(text.split(), monkeypatch, capsys)


def test_the_program_alone_shows_its_help(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["kueuelib"])
    with pytest.raises(SystemExit):
        main()
    assert "Usage: kueuelib [OPTIONS] COMMAND" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (
            ["explain"],
            "kueuelib explain: nothing to explain was named; give either KIND/NAME or -f FILE",
        ),
        (
            ["install", "--print", "--chart", "folder"],
            "kueuelib install: --print contradicts --chart and --kustomize; give one of them",
        ),
    ],
)
def test_what_contradicts_itself_is_said_once(
    arguments: list[str],
    line: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert said(arguments, monkeypatch, capsys) == line


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ("self.size <", "Syntax error: mismatched input"),
        ("self.size.startsWith('x')", "found no matching overload for 'startsWith'"),
    ],
)
def test_a_rule_that_an_api_server_would_refuse_is_not_printed(
    rule: str,
    said: str,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "things.py").write_text(THINGS.format(rule=rule))
    monkeypatch.setattr(sys, "argv", ["kueuelib", "manifests", str(tmp_path / "things.py")])
    with pytest.raises(SystemExit) as left:
        main()
    printed = capsys.readouterr()
    assert (left.value.code, printed.out) == (2, "")
    assert "CustomResourceDefinition things.example.com: spec.validation." in printed.err
    assert said in printed.err


THINGS = """
from kueuelib.runtime import KubeObject, Operator, Rule, Struct, crd, frozen

app = Operator("things")


@frozen
class Spec(Struct):
    size: int = 0


@crd("example.com", "v1", plural="things", rules=[Rule("spec", {rule!r}, "no")])
@frozen
class Thing(KubeObject):
    spec: Spec = Spec()


@app.reconciles(Thing)
async def reconcile(thing, context):
    pass
"""
