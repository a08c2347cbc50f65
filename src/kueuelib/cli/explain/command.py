"""`kueuelib explain`: the command."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import anyio
import attrs

from kueuelib.api.names import DEFAULT_NAMESPACE
from kueuelib.app.configuration import Configuration
from kueuelib.app.decision_settings import engine_settings
from kueuelib.app.explaining.asking import PAIR_SECONDS, Answer, ask, ask_about
from kueuelib.app.explaining.manifests import Document, parse_manifests
from kueuelib.app.explaining.subject import parse_reference
from kueuelib.app.part_settings import job_settings
from kueuelib.app.running_configuration import given_configuration, running_configuration
from kueuelib.errors import ConfigError
from kueuelib.runtime import logs
from kueuelib.runtime.clock import SYSTEM_CLOCK
from kueuelib.runtime.connection import ATTEMPT_TIMEOUT, connect, wait_for_server
from kueuelib.runtime.yaml_files import read_text

THOROUGH_SECONDS = 60.0
"""The processor time for pairs of changes with `--thorough`."""


def run(
    reference: str | None,
    file: str | None,
    kubeconfig: Path | None,
    config: Path | None,
    namespace: str,
    output: str,
    server_timeout: float,
    *,
    thorough: bool,
) -> int:
    """Explains an object or manifests, and prints the answer.

    Args:
        reference: `KIND/NAME`, or None.
        file: a file of manifests, `-` for standard input, or None.
        kubeconfig: the cluster; found by kubectl's rules when None.
        config: the manager's configuration file; found in the cluster when None.
        namespace: the namespace; that of the kubeconfig's context when empty.
        output: `text` or `json`.
        server_timeout: seconds to wait for a server that does not answer.
        thorough: whether to take longer for pairs of changes.

    Raises:
        ConfigError: an argument or a file is not valid.
        KueuelibError: the object does not exist, or the server refused something.
    """
    if (reference is None) is (file is None):
        problem = "nothing to explain was named" if file is None else "an object and a file"
        raise ConfigError("kueuelib explain", problem, "give either KIND/NAME or -f FILE")
    if reference is not None:
        parse_reference(reference)
    text = None if file is None else _read(file)
    logs.configure("console", "warning")
    given = given_configuration(config)
    seconds = THOROUGH_SECONDS if thorough else PAIR_SECONDS
    source = "standard input" if file == "-" else str(file)
    asked = partial(_ask, reference, source, text, kubeconfig, namespace, server_timeout, given)
    answers = anyio.run(asked, seconds)
    if output == "json":
        from kueuelib.cli.explain.data import to_json

        sys.stdout.write(to_json(answers, many=file is not None))
        return 0
    from kueuelib.cli.explain.text import show

    show(answers)
    return 0


def _read(file: str) -> str:
    if file == "-":
        return sys.stdin.read()
    return read_text(Path(file), "give the path of a readable manifest")


async def _ask(
    reference: str | None,
    source: str,
    text: str | None,
    kubeconfig: Path | None,
    namespace: str,
    server_timeout: float,
    given: Configuration | None,
    seconds: float,
) -> tuple[Answer, ...]:
    patience = max(server_timeout, ATTEMPT_TIMEOUT)
    async with await connect(kubeconfig, user_agent="kueuelib-explain", timeout=patience) as client:
        endpoint = await client.transport.endpoint()
        default = endpoint.namespace or DEFAULT_NAMESPACE
        documents: tuple[Document, ...] = ()
        if text is not None:
            documents = parse_manifests(text, source, namespace, default)
        await wait_for_server(client, server_timeout, starting=False)
        running = await running_configuration(client, given)
        settings, jobs = engine_settings(running.configuration), job_settings(running.configuration)
        if reference is None:
            now = SYSTEM_CLOCK.now()
            answers = await ask_about(client, documents, now, settings, jobs, seconds)
        else:
            subject = parse_reference(reference)
            where = namespace or default
            answer = await ask(client, subject, where, settings, jobs, seconds=seconds)
            answers = (answer,)
    return tuple(
        attrs.evolve(one, notes=(*one.notes, *running.notes, *running.leaderless))
        for one in answers
    )
