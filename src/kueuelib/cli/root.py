"""The commands and their options; the work is in the module of each command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Job queueing for Kubernetes, and the framework it is built on.",
)

KubeconfigOption = Annotated[
    Path | None,
    typer.Option(
        help="Kubeconfig of the cluster; default: $KUBECONFIG, ~/.kube/config, then in-cluster."
    ),
]
LogFormatOption = Annotated[
    str, typer.Option(help="Log lines for people (console) or machines (json).")
]
ServerTimeoutOption = Annotated[
    float, typer.Option(help="Seconds to wait for a server that does not answer yet.")
]


def _version(wanted: bool) -> None:
    if wanted:
        from kueuelib import __version__

        typer.echo(f"kueuelib {__version__}")
        raise typer.Exit


@app.callback()
def root(
    *,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """Job queueing for Kubernetes, and the framework it is built on."""


@app.command()
def demo(
    *,
    jobs: Annotated[int, typer.Option(min=1, max=200, help="How many Jobs to queue.")] = 12,
    plain: Annotated[bool, typer.Option(help="Print lines instead of a live table.")] = False,
    keep: Annotated[
        bool, typer.Option(help="Keep the servers' log files and print where they are.")
    ] = False,
) -> None:
    """Queue Jobs on a simulated cluster with the real manager, and watch them run."""
    from kueuelib.cli.demo.play import run

    raise typer.Exit(run(jobs, plain=plain, keep=keep))


@app.command()
def apiserver(
    *,
    kubeconfig: Annotated[Path, typer.Option(help="Where to write a kubeconfig.")],
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free port.")] = 0,
    data_dir: Annotated[
        Path | None, typer.Option(help="Keep the state here (not available yet).")
    ] = None,
    simulate: Annotated[
        bool, typer.Option("--simulate", help="Also play nodes, kubelets and the Job controller.")
    ] = False,
) -> None:
    """Serve the Kubernetes API on 127.0.0.1, with its state in memory."""
    from kueuelib.cli.apiserver import run

    run(port, kubeconfig, data_dir, simulate=simulate)


@app.command()
def install(
    *,
    kubeconfig: KubeconfigOption = None,
    webhook_url: Annotated[
        str | None,
        typer.Option(
            help="https://HOST:PORT of the manager's webhooks; default: the in-cluster Service."
        ),
    ] = None,
    print_: Annotated[
        bool, typer.Option("--print", help="Print the manifests, change nothing.")
    ] = False,
    namespace: Annotated[str, typer.Option(help="The namespace of the manager.")] = "kueue-system",
    server_timeout: ServerTimeoutOption = 60.0,
) -> None:
    """Create or update the CRDs, RBAC and webhooks; may be run again at any time."""
    from kueuelib.cli.install import run

    run(kubeconfig, webhook_url, namespace, server_timeout, print_only=print_)


@app.command()
def manager(
    *,
    kubeconfig: KubeconfigOption = None,
    config: Annotated[
        Path | None, typer.Option(help="Configuration (config.kueue.x-k8s.io/v1beta1).")
    ] = None,
    log_format: LogFormatOption = "console",
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "info",
    server_timeout: ServerTimeoutOption = 60.0,
) -> None:
    """Run the queueing manager until SIGTERM."""
    from kueuelib.cli.manager import run

    raise typer.Exit(run(kubeconfig, config, log_format, log_level, server_timeout))


@app.command()
def crds(
    *,
    output: Annotated[
        Path | None, typer.Option(help="Write one file per kind into this folder.")
    ] = None,
) -> None:
    """Print the CustomResourceDefinitions as YAML, or write them to a folder."""
    from kueuelib.cli.crds import run

    run(output)
