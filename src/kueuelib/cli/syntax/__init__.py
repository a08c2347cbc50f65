"""Commands and their options, by family; nothing heavy is imported before it is needed."""

from __future__ import annotations

import click

from kueuelib import __version__
from kueuelib.cli.syntax import installing, long_running, queries, traces


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="kueuelib", message="%(prog)s %(version)s")
def app() -> None:
    """Job queueing for Kubernetes, and the framework it is built on."""


for family in (long_running.COMMANDS, installing.COMMANDS, queries.COMMANDS, traces.COMMANDS):
    for command in family:
        app.add_command(command)
