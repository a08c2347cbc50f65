"""Commands that decide on past jobs: recordings and traces."""

from __future__ import annotations

from typing import Any

import click

from kueuelib.cli.syntax.options import (
    FILE,
    Number,
    TextType,
    kubeconfig,
    logging,
    recorded,
    server_timeout,
    setting,
)


class _Format(TextType):
    """A format of traces; the readers that know them are loaded only when it is needed."""

    name = "format"

    def _choice(self) -> click.Choice[str]:
        from kueuelib.simulator.readers.formats import FORMATS

        return click.Choice([*FORMATS])

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        """The formats, for the help; click before 8.2 gives no context."""
        del param, ctx
        return f"[{'|'.join(self._choice().choices)}]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The format, or a mistake in the command line."""
        return self._choice().convert(value, param, ctx)


@click.command()
@click.argument("file", type=FILE)
@kubeconfig
@click.option("--config", type=FILE, help="The configuration of the manager that decides.")
@recorded
@logging
@server_timeout
def record(**given: Any) -> int:
    """Record the input of any manager's decisions, from watches alone, until SIGTERM.

    It only reads, on any cluster that has the objects.
    """
    from kueuelib.cli.manager import ManagerOptions
    from kueuelib.cli.manager import record as run

    return run(ManagerOptions(**given))


@click.command()
@click.argument("file", type=FILE)
@click.option(
    "--until", metavar="TIME", help="Stop at this time: seconds since the epoch, or a date."
)
@click.option(
    "--explain",
    multiple=True,
    metavar="JOB@TIME",
    help="Explain why a job waited at a time; repeatable.",
)
@click.option(
    "--with",
    "policies",
    type=FILE,
    multiple=True,
    metavar="FILE",
    help="Simulate from --until on, with these objects in place of recorded ones.",
)
@click.option("--output", type=FILE, help="The folder for the results of --with.")
@click.option(
    "--to-scenario",
    "scenario",
    is_flag=True,
    help="Print the objects at that time as a scenario.",
)
def replay(**options: Any) -> int:
    """Repeat the recorded decisions, and compare every plan with the recorded one."""
    from kueuelib.cli.replay import ReplayOptions, run

    return run(ReplayOptions(**options))


@click.command()
@click.argument("traces", metavar="TRACE...", nargs=-1, required=True, type=FILE)
@click.option("--format", help="Format of all traces; default: by file name.", type=_Format())
@click.option(
    "--cluster", type=FILE, help="Queues and other objects; default: derived from the trace."
)
@click.option(
    "--kubeconfig",
    type=FILE,
    help="Read queues and flavors from this live cluster instead.",
)
@server_timeout
@click.option(
    "--policy",
    "policies",
    type=FILE,
    multiple=True,
    help="Objects that replace those of the cluster, in a separate run; repeatable.",
)
@click.option("--config", type=FILE, help="The manager's configuration.")
@click.option("--output", type=FILE, required=True, help="The folder for the results.")
@click.option(
    "--queue-by",
    type=click.Choice(["user", "vc", "group", "queue"]),
    help="The field of a trace that names the LocalQueue of a job.",
)
@click.option("--strict", is_flag=True, help="Refuse a trace with a bad line.")
@setting(
    "--scale", Number(min=0, min_open=True), 1.0, "Multiply the number of jobs of a synthetic load."
)
@click.option(
    "--check",
    "checks",
    multiple=True,
    metavar="NAME=SECONDS",
    help="Seconds until an AdmissionCheck is Ready; repeatable.  [default: 0]",
)
@setting(
    "--stop-seconds",
    Number(min=0),
    0.0,
    "Seconds from the eviction of a running job until its quota is free.",
)
@setting(
    "--ready-seconds",
    Number(min=0),
    0.0,
    "Seconds from admission until all pods are ready, if the configuration waits for them.",
)
@setting(
    "--sample-seconds",
    Number(min=0, min_open=True),
    60.0,
    "Seconds: at most one row per ClusterQueue and interval in queues.csv.",
)
@click.option(
    "--explain",
    multiple=True,
    metavar="JOB@TIME",
    help="Explain why a job waits at a time of the trace; repeatable.",
)
def simulate(**options: Any) -> int:
    """Run a trace of jobs through the scheduler in virtual time, under any number of policies."""
    from kueuelib.cli.simulate.command import SimulateOptions, run_simulation

    return run_simulation(SimulateOptions(**options))


COMMANDS = (record, replay, simulate)
