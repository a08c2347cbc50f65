"""Commands that run until they are stopped: servers, managers, and the demo."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from kueuelib.cli.light_imports import light_imports
from kueuelib.cli.syntax.options import (
    FILE,
    kubeconfig,
    logging,
    port,
    recorded,
    server_timeout,
    setting,
)


@click.command()
@setting("--jobs", click.IntRange(1, 200), 12, "How many Jobs to queue.")
@click.option("--plain", is_flag=True, help="Print lines instead of a live table.")
@click.option("--keep", is_flag=True, help="Keep the servers' log files and say where they are.")
@click.option("--picture", type=FILE, help="Write a picture of the output to this SVG file.")
@click.option(
    "--run",
    "really",
    is_flag=True,
    help="Run two Jobs whose pods are local processes, not simulated.",
)
def demo(jobs: int, plain: bool, keep: bool, picture: Path | None, really: bool) -> int:
    """Queue Jobs on a simulated cluster with the real manager, and watch them run."""
    from kueuelib.cli.demo.play import run, run_processes

    if really:
        return run_processes(keep=keep, picture=picture)
    return run(jobs, plain=plain, keep=keep, picture=picture)


@click.group(invoke_without_command=True)
@click.option("--kubeconfig", type=FILE, help="Where to write a kubeconfig.  [required]")
@port("The port on 127.0.0.1; 0 takes a free one.")
@click.option(
    "--data-dir", type=FILE, help="Keep the state in this folder; otherwise it is in memory."
)
@click.option("--load", "manifests", type=FILE, help="Begin with the objects of this file.")
@click.option(
    "--simulate",
    is_flag=True,
    help="Also simulate nodes, the scheduler and the controllers of Jobs, Deployments and others.",
)
@click.option(
    "--nodes", type=FILE, help="Simulate with these nodes: manifests with labels and capacity."
)
@click.option(
    "--racks",
    default="",
    metavar="RACKSxNODES",
    help="Simulate with nodes in racks: 4x8 for 4 racks of 8, 2x4x8 for 2 blocks of 4 racks.",
)
@setting(
    "--authorization",
    click.Choice(["always", "rbac"]),
    "always",
    "Allow clients with credentials everything, or only what roles grant.",
)
@click.option(
    "--service",
    "services",
    multiple=True,
    metavar="NAMESPACE/NAME=HOST:PORT",
    help="The address of a Service's webhooks; repeatable.",
)
@click.option("--hostile", default="", metavar="PROFILE", help="Be hostile to every client.")
@setting("--seed", click.INT, 1, "What --hostile draws its faults from.")
@click.option(
    "--calm-after",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="End --hostile after this time; otherwise it lasts as long as the server.",
)
@click.pass_context
def apiserver(
    context: click.Context, /, *, kubeconfig: Path | None, services: tuple[str, ...], **given: Any
) -> int:
    """Serve the Kubernetes API on 127.0.0.1."""
    if context.invoked_subcommand is not None:
        return 0
    if kubeconfig is None:
        raise click.MissingParameter(ctx=context, param_hint="--kubeconfig", param_type="option")
    from kueuelib.cli.apiserver import run

    run(kubeconfig=kubeconfig, services=dict(map(_pair, services)), **given)
    return 0


def _pair(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    return name, value


@apiserver.command()
@kubeconfig
@click.option(
    "--backup", type=FILE, help="Write queueing objects, without Workloads, to this new file."
)
@server_timeout
def dump(**given: Any) -> int:
    """Print every object of a server as YAML, for apiserver --load."""
    from kueuelib.cli.dump import run

    run(**given)
    return 0


@click.command()
@kubeconfig
@click.option("--config", type=FILE, help="Configuration (config.kueue.x-k8s.io).")
@click.option(
    "--record",
    "file",
    type=FILE,
    metavar="FILE",
    help="Record the input of all decisions, for kueuelib replay.",
)
@recorded
@click.option("--print-config", is_flag=True, help="Print the configuration with its defaults.")
@logging
@server_timeout
def manager(**given: Any) -> int:
    """Run the queueing manager until SIGTERM."""
    with light_imports(serves=True):
        from kueuelib.cli.manager import ManagerOptions, run

    return run(ManagerOptions(**given))


@click.command()
@click.argument("reference", metavar="MODULE[:NAME]")
@kubeconfig
@click.option("--config", type=FILE, help="The manager's configuration, for what both share.")
@click.option(
    "--namespace", help="The namespace of certificate and Lease; default: as for the manager."
)
@click.option(
    "--webhook-address",
    metavar="HOST:PORT",
    help="Where to serve webhooks; default: as in the configuration.",
)
@click.option(
    "--health-address", metavar="HOST:PORT", help='Where to serve probes; "0" turns them off.'
)
@click.option(
    "--metrics-address", metavar="HOST:PORT", help='Where to serve metrics; "0" turns them off.'
)
@click.option(
    "--leader-elect/--no-leader-elect", default=None, help="Whether it needs a Lease to act."
)
@click.option(
    "--cluster",
    "clusters",
    multiple=True,
    metavar="NAME=KUBECONFIG",
    help="Where another cluster of an operator is; repeatable.",
)
@logging
@server_timeout
def run(*, clusters: tuple[str, ...], **given: Any) -> int:
    """Run your operator, admission checks, or the integration of your kind of jobs.

    MODULE is a Python module or the path of a .py file that holds an Operator, a subclass of
    GenericJob or an Integration; NAME is needed when it holds several. Admission checks of a module
    all run; they take --kubeconfig, --namespace, --leader-elect, --server-timeout and the options
    of the log. An operator takes all options except --config.
    """
    from kueuelib.cli.run import run

    where = {name: Path(file) for name, file in map(_pair, clusters) if file}
    if len(where) < len(clusters):
        raise click.BadParameter("write NAME=KUBECONFIG, each name once", param_hint="--cluster")
    return run(clusters=where, **given)


@click.command()
@kubeconfig
@setting("--name", click.STRING, "local", "The name of the Node.")
@click.option(
    "--image",
    "images",
    multiple=True,
    metavar="NAME=FOLDER[:FOLDER...]",
    help="Allow an image, and name the folder that stands for it; repeatable.",
)
@click.option(
    "--claim",
    "claims",
    multiple=True,
    metavar="NAME=FOLDER",
    help="Name the folder that stands for a PersistentVolumeClaim; repeatable.",
)
@click.option("--cpu", default="", help="CPUs for its pods; default: all of this machine.")
@click.option("--memory", default="", help="Memory for its pods; default: all of this machine.")
@click.option(
    "--label",
    "labels",
    multiple=True,
    metavar="NAME=VALUE",
    help="A label of the Node; repeatable.",
)
@click.option(
    "--no-sandbox",
    is_flag=True,
    help="Run pods without bubblewrap: a pod can do what your user can.",
)
@click.option("--folder", type=FILE, help="Folder for the files of pods; default: a temporary one.")
@port("The kubelet's port on 127.0.0.1; 0 takes a free one.")
@logging
@server_timeout
def node(*, claims: tuple[str, ...], labels: tuple[str, ...], **given: Any) -> int:
    """Join a server on 127.0.0.1 as a node that runs pods as local processes."""
    with light_imports(serves=True):
        from kueuelib.cli.node import run

    return run(claims=dict(map(_pair, claims)), labels=dict(map(_pair, labels)), **given)


@click.command()
@click.argument("kind", type=click.Choice(["operator", "job", "check"]))
@click.argument("name")
@click.option("--folder", type=FILE, default=Path(), help="Where to create the folder NAME.")
def new(kind: str, name: str, folder: Path) -> int:
    """Write a small project with tests: an operator, a kind of jobs, or an admission check."""
    from kueuelib.cli.new import run

    for path in run(kind, name, folder):
        click.echo(path)
    return 0


COMMANDS = (demo, apiserver, manager, node, run, new)
