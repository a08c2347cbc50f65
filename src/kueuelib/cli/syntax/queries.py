"""Commands that read a cluster and print what they found."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import click

from kueuelib.cli.light_imports import light_imports
from kueuelib.cli.syntax.options import FILE, F, answer_timeout, kubeconfig, port


def _output(*forms: str, help: str) -> Callable[[F], F]:
    form = click.Choice(forms)
    return click.option("-o", "--output", type=form, default="text", show_default=True, help=help)


_namespace = click.option(
    "-n",
    "--namespace",
    default="",
    help="The namespace; default: that of the kubeconfig's context.",
)


def _changes(command: F) -> F:
    most = click.option(
        "--changes",
        type=click.IntRange(0),
        metavar="[NUMBER]",
        is_flag=False,
        flag_value=sys.maxsize,
        help=(
            "Search for the smallest change that would admit each Workload (a moment for each); "
            "with a number, only for that many, starting with the first of each queue."
        ),
    )
    config = click.option(
        "--config", type=FILE, help="The manager's configuration, where it changes decisions."
    )
    return most(config(command))


@click.command()
@click.argument("reference", metavar="[KIND/NAME]", required=False)
@click.option(
    "-f", "--filename", "file", metavar="FILE", help='Manifests not submitted yet; "-": stdin.'
)
@_namespace
@_output("text", "json", help="A table for people, or everything for machines.")
@click.option(
    "--config",
    type=FILE,
    help=(
        "The manager's configuration (fairSharing, admissionFairSharing, preemption, "
        "waitForPodsReady, manageJobsWithoutQueueName)."
    ),
)
@click.option("--thorough", is_flag=True, help="Search up to a minute for pairs of changes.")
@click.option("--when", is_flag=True, help="Print when it will start, from many simulations.")
@kubeconfig
@answer_timeout
def explain(*, when: bool, **given: Any) -> int:
    """Say why a Job, Pod or Workload waits, and the smallest changes that would admit it.

    It only reads, on any cluster that has the objects. KIND is job, pod,
    workload, or any other kind whose objects have Workloads.
    """
    if when:
        from kueuelib.cli.explain.command import ExplainOptions
        from kueuelib.cli.explain.when import run as run_when

        return run_when(ExplainOptions(**given))
    with light_imports():
        from kueuelib.cli.explain.command import ExplainOptions, run

    return run(ExplainOptions(**given))


@click.command()
@click.option(
    "-q", "--localqueue", "local_queue", default="", metavar="NAME", help="Only this LocalQueue."
)
@click.option(
    "-c",
    "--clusterqueue",
    "cluster_queue",
    default="",
    metavar="NAME",
    help="Only this ClusterQueue, with the Workloads of all namespaces unless -n names one.",
)
@_namespace
@click.option(
    "-A", "--all-namespaces", "everywhere", is_flag=True, help="The Workloads of all namespaces."
)
@_output("text", "wide", "json", help="A table, a wider one, or everything for machines.")
@_changes
@kubeconfig
@answer_timeout
def pending(**given: Any) -> int:
    """List the waiting Workloads in queue order, with verdicts.

    It only reads. It names objects that it may not read, and leaves them out.
    """
    with light_imports():
        from kueuelib.cli.pending import run

    return run(**given)


@click.command()
@click.option("--serve", is_flag=True, help="Serve the page on 127.0.0.1, and keep it up to date.")
@port("The port for --serve; 0 takes a free one.")
@click.option(
    "-n",
    "--namespace",
    default="",
    help="The namespace to read if you may not read all of them.",
)
@_changes
@kubeconfig
@answer_timeout
def report(*, serve: bool, **given: Any) -> int:
    """Print one HTML page: quota, waiting, running and evicted Workloads.

    It only reads. The page names what it may not read.
    """
    with light_imports(serves=serve):
        from kueuelib.cli.report.command import run

    return run(serve=serve, **given)


@click.command()
@_output("text", "json", help="Lines for people, or everything for machines.")
@click.option("--config", type=FILE, help="The manager's configuration.")
@click.option(
    "--self",
    "own",
    is_flag=True,
    help="Check your own permissions, for a manager that runs with this kubeconfig.",
)
@click.option(
    "--before-migration",
    is_flag=True,
    help="Report what would change if kueuelib took over from the Go manager.",
)
@kubeconfig
@answer_timeout
def doctor(**given: Any) -> int:
    """Report what is wrong with an installation, and the command that fixes it.

    It writes nothing. Exit code 0: no findings or hints only, 3: warnings, 4: errors.
    """
    with light_imports():
        from kueuelib.cli.doctor import run

    return run(**given)


COMMANDS = (explain, pending, report, doctor)
