"""YAML, JSON, TOML and commands on the pages are valid."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from kueuelib.api.crd import KINDS, all_crds
from kueuelib.api.meta import Resource
from kueuelib.app.configuration import KIND
from kueuelib.app.configuration_reading import parse_configuration
from kueuelib.app.configuration_text import V1BETA2
from kueuelib.cli.syntax import app
from kueuelib.embedded import ApiServer
from kueuelib.embedded.admission.hook_rules import compile_conditions, fulfilled
from kueuelib.errors import ApiError, ConfigError
from kueuelib.runtime import Client, kinds
from kueuelib.simulator.parsing import Faults
from kueuelib.simulator.readers import made_up
from kueuelib.simulator.readers.source import TraceSource

from .blocks import PAGES, ROOT, TUTORIALS, Block, blocks, blocks_of

LANGUAGES = {"console", "json", "python", "sh", "text", "toml", "yaml", "{eval-rst}"}
YAML = [block for block in blocks("yaml") if block.page not in TUTORIALS]
COMMANDS = blocks("console", "sh")
QUEUEING = "kueue.x-k8s.io/"
SERVED = {each.kind: each for each in vars(kinds).values() if isinstance(each, Resource)}
NEEDED = {"LocalQueue": {"spec": {"clusterQueue": "any"}}}
POLICY = "ValidatingAdmissionPolicy"
_CALL = re.compile(r"(?:^|[|&;] *|bin/|`)(kueuelib(?: +[^|&;#>`\n]+)?)", re.MULTILINE)


def documents(block: Block) -> list[Any]:
    """The YAML documents of a block."""
    return [each for each in yaml.safe_load_all(block.text) if each is not None]


def completed(found: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """An object of a page, or the objects of our kinds of which a page shows a part."""
    if "kind" in found:
        yield dict(found)
    else:
        for kind in KINDS:
            head = {"apiVersion": f"{QUEUEING}v1beta2", "kind": kind, "metadata": {}}
            yield {**head, **NEEDED.get(kind, {}), **found}


async def problem(client: Client, obj: dict[str, Any]) -> str:
    """Why an API server with our CRDs refuses an object, or nothing."""
    resource = SERVED[obj["kind"]]
    meta = {"name": "page", **obj["metadata"]}
    if resource.namespaced:
        meta.setdefault("namespace", "default")
        if meta["namespace"] != "default":
            await client.create(kinds.NAMESPACES, kinds.NAMESPACES.new(meta["namespace"]))
    query = [("dryRun", "All"), ("fieldValidation", "Strict")]
    path = resource.path(meta.get("namespace", ""))
    try:
        await client.request("POST", path, params=query, body={**obj, "metadata": meta})
    except ApiError as error:
        return str(error)
    return ""


def check_file(found: dict[str, Any], path: Path) -> None:
    """Read what is not an object: a description of a trace, or a part of a configuration.

    Raises:
        ConfigError: it is not valid.
    """
    if "arrivals" in found:
        path.write_text(yaml.safe_dump({**found, "jobs": 10}))
        assert list(made_up.read_synthetic(path, Faults(), TraceSource()))
        return
    try:
        parse_configuration({"apiVersion": V1BETA2, "kind": KIND, **found}, str(path))
    except ConfigError as error:
        # A policy of an example, which is not installed.
        if "no installed package offers 'example.com/" not in str(error):
            raise


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_block_has_a_language_that_is_checked(page: Any) -> None:
    for block in blocks_of(page):
        assert block.language in LANGUAGES, f"{block}: {block.language!r}"


@pytest.mark.parametrize("block", YAML, ids=str)
async def test_objects_pass_the_schemas_and_configurations_are_accepted(
    block: Block, tmp_path: Path
) -> None:
    async with ApiServer() as server, server.client() as client:
        for crd in all_crds():
            await client.create(kinds.CRDS, crd)
        for found in documents(block):
            if found.get("kind") == POLICY:  # not served
                compile_conditions(conditions_of(found))
                continue
            if found.get("kind") == KIND or not {"spec", "status", "metadata"} & found.keys():
                check_file(found, tmp_path / "page.yaml")
                continue
            problems = [await problem(client, each) for each in completed(found)]
            assert "" in problems, "\n".join(problems)


def conditions_of(policy: Mapping[str, Any]) -> list[dict[str, str]]:
    """The expressions of a policy, as conditions with names."""
    return [{"name": "page", **each} for each in policy["spec"]["validations"]]


def test_the_policy_for_kinds_without_suspend_wants_a_queue_in_the_template() -> None:
    page = ROOT / "docs/kinds-without-suspend.md"
    found = [
        each for block in blocks_of(page) if block.language == "yaml" for each in documents(block)
    ]
    (policy,) = [each for each in found if each.get("kind") == POLICY]
    (template,) = [each for each in found if "metadata" in each and "kind" not in each]
    conditions = compile_conditions(conditions_of(policy))
    for judged, holds in ((template, True), ({"metadata": {"labels": {}}}, False), ({}, False)):
        obj = {"spec": {"template": judged}}
        assert fulfilled(conditions, obj, None, {}) is holds


@pytest.mark.parametrize("block", blocks("json"), ids=str)
def test_json_is_json(block: Block) -> None:
    assert json.loads(block.text)


@pytest.mark.parametrize("block", blocks("toml"), ids=str)
def test_toml_is_toml(block: Block) -> None:
    assert tomllib.loads(block.text)


def calls(block: Block) -> Iterator[list[str]]:
    """The arguments of `kueuelib` in a block of commands."""
    lines = block.text.replace("\\\n", " ").splitlines()
    if block.language == "console":
        lines = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
    for line in lines:
        for found in _CALL.findall(line.split(" #")[0]):
            yield shlex.split(found)[1:]


def check_call(arguments: list[str]) -> None:
    """Parse a call as the command line does, without running anything.

    Raises:
        click.UsageError: there is no such command, option or argument.
    """
    command: click.Command = app
    context = click.Context(app, info_name="kueuelib")
    while isinstance(command, click.Group) and arguments and not arguments[0].startswith("-"):
        _, found, arguments = command.resolve_command(context, arguments)
        assert found is not None
        command = found
    _, rest, _ = command.make_parser(click.Context(command)).parse_args(list(arguments))
    if rest:
        raise click.UsageError(f"unexpected arguments: {rest}")


@pytest.mark.parametrize("block", [each for each in COMMANDS if list(calls(each))], ids=str)
def test_commands_name_commands_and_options_that_exist(block: Block) -> None:
    for arguments in calls(block):
        check_call(arguments)


@pytest.mark.parametrize("call", ["explode", "explain --loudly job/a", "explain job/a job/b job/c"])
def test_a_call_that_does_not_exist_is_found(call: str) -> None:
    with pytest.raises(click.UsageError):
        check_call(shlex.split(call))


@pytest.mark.parametrize("block", COMMANDS, ids=str)
def test_commands_name_files_that_exist(block: Block) -> None:
    for path in re.findall(r"(?<![\w/.-])(?:examples|docs|tests|src)/[\w/.-]+", block.text):
        assert (ROOT / path).exists(), path
