"""`kueuelib report`: the command."""

from __future__ import annotations

import sys
from pathlib import Path

import anyio

from kueuelib.api.meta import ObjectKey
from kueuelib.app.configuration import Configuration
from kueuelib.app.explaining.waiting import ahead, with_change
from kueuelib.app.overview.gathering import ListedFacts, overview_of
from kueuelib.app.running_configuration import given_configuration
from kueuelib.cli.progress import SEARCHING, StepProgress
from kueuelib.cli.report.page import VerifiedChange, View, page
from kueuelib.cli.report.reading import read
from kueuelib.errors import ConfigError
from kueuelib.runtime import logs
from kueuelib.runtime.clock import SYSTEM_CLOCK
from kueuelib.runtime.connection import reached

IN_BACKGROUND = 10
"""For how many Workloads a live page searches without a request, if no number is given."""


def run(
    kubeconfig: Path | None,
    config: Path | None,
    namespace: str,
    changes: int | None,
    server_timeout: float,
    *,
    serve: bool,
    port: int,
) -> int:
    """Prints the page, or serves it until SIGTERM or SIGINT.

    Args:
        kubeconfig: the cluster; found by kubectl's rules when None.
        config: the manager's configuration file; found in the cluster when None.
        namespace: where to read kinds that may not be read in the whole cluster; empty for nowhere.
        changes: for how many Workloads to search for the smallest change; None: for those that a
            live page searches in the background, and for none of a file.
        server_timeout: seconds to wait for a server that does not answer.
        serve: serve it.
        port: on loopback; 0 for any free one.

    Raises:
        ConfigError: an argument or a file is not valid.
        KueuelibError: there is nothing to show, or the server failed.
    """
    if port and not serve:
        raise ConfigError("kueuelib report", "--port is for --serve only", "add --serve")
    logs.configure("console", "warning")
    given = given_configuration(config)
    if serve:
        from kueuelib.cli.report.serving import run as run_live

        most = IN_BACKGROUND if changes is None else changes
        return run_live(kubeconfig, given, namespace, most, server_timeout, port)
    facts = anyio.run(_read, kubeconfig, given, namespace, server_timeout)
    sys.stdout.write(text_of(facts, changes or 0))
    return 0


async def _read(
    kubeconfig: Path | None, given: Configuration | None, namespace: str, server_timeout: float
) -> ListedFacts:
    async with reached(kubeconfig, server_timeout, user_agent="kueuelib-report") as client:
        reading = await read(client, namespace, given)
        return reading.facts(reading.near, SYSTEM_CLOCK.now())


def text_of(facts: ListedFacts, changes: int) -> str:
    """The page as a file.

    Args:
        facts: of the cluster.
        changes: for how many Workloads to search for the smallest change.
    """
    overview = overview_of(facts)
    first = ahead(overview.waiting, facts.world, changes) if overview.decided else []
    verified: dict[ObjectKey, VerifiedChange] = {}
    with StepProgress(SEARCHING, len(first)) as progress:
        for row in first:
            progress.step(str(row.key))
            change = with_change(facts.world, row, facts.now).change
            verified[row.key] = VerifiedChange(change, facts.now)
    return page(View(overview, verified), facts.now)
