"""Commands that install kueuelib in a cluster, remove it, or print its objects."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from kueuelib.cli.syntax.options import FILE, kubeconfig, server_timeout, setting
from kueuelib.errors import ConfigError

_namespace = setting("--namespace", str, "kueue-system", "The manager's namespace.")


@click.command()
@kubeconfig
@click.option(
    "--webhook-url",
    help="https://HOST:PORT of the manager's webhooks; default: the Service in the cluster.",
)
@_namespace
@click.option("--image", help="Image of the manager's Deployment; default: kueuelib:VERSION.")
@setting(
    "--replicas",
    click.IntRange(min=1),
    2,
    "Pods of the manager: one decides, the others stand by.",
)
@click.option("--config", type=FILE, help="The manager's configuration.")
@click.option("--service-monitor", is_flag=True, help="Write a ServiceMonitor for Prometheus.")
@click.option("--dashboards", is_flag=True, help="Write a ConfigMap with Grafana's dashboard.")
@click.option(
    "--without-v1beta1", is_flag=True, help="Serve only v1beta2, which costs API servers less."
)
@click.option("--print", "print_only", is_flag=True, help="Print the manifests and change nothing.")
@click.option("--chart", type=FILE, help="Write a Helm chart into this folder and change nothing.")
@click.option(
    "--kustomize", type=FILE, help="Write a kustomize base into this folder and change nothing."
)
@server_timeout
def install(
    *,
    kubeconfig: Path | None,
    webhook_url: str | None,
    namespace: str,
    print_only: bool,
    chart: Path | None,
    kustomize: Path | None,
    server_timeout: float,
    **options: Any,
) -> int:
    """Create or update the manager and everything that it needs; safe to repeat."""
    from kueuelib.cli.install import InstallOptions, run, write_packages

    chosen = InstallOptions(**options)
    if (chart or kustomize) and print_only:
        raise ConfigError(
            "kueuelib install", "--print contradicts --chart and --kustomize", "give one of them"
        )
    if chart or kustomize:
        write_packages(chosen, namespace, chart, kustomize)
        return 0
    run(kubeconfig, webhook_url, namespace, server_timeout, chosen, print_only=print_only)
    return 0


@click.command()
@kubeconfig
@_namespace
@click.option("--force", is_flag=True, help="Uninstall even while Workloads hold quota.")
@click.option(
    "--keep-crds", "keep_kinds", is_flag=True, help="Keep the CRDs with all queues and Workloads."
)
@server_timeout
def uninstall(**given: Any) -> int:
    """Remove the manager and everything that install created, unless Workloads hold quota.

    Waiting Jobs stay suspended, and waiting Pods stay gated. First stop any manager that runs
    elsewhere.
    """
    from kueuelib.cli.install import run_uninstall

    run_uninstall(**given)
    return 0


@click.command()
@click.option("--output", type=FILE, help="Write one file per kind into this folder.")
def crds(output: Path | None) -> int:
    """Print the CustomResourceDefinitions as YAML, or write them to a folder."""
    from kueuelib.cli.manifests import print_crds

    print_crds(output)
    return 0


@click.command()
@click.argument("references", metavar="MODULE[:NAME]...", nargs=-1, required=True)
@click.option(
    "--namespace",
    help="The namespace to run in; default: kueue-system; for an operator, one with its name.",
)
@setting("--image", str, "kueuelib:latest", "Image of the Deployment; it must contain the module.")
@click.option(
    "--webhook-url",
    help="https://HOST:PORT of a process outside the cluster; then no Deployment is printed.",
)
@click.option("--plugin", is_flag=True, help="For the bundled manager: permissions only.")
def manifests(**given: Any) -> int:
    """Print the CRDs, RBAC, webhooks and Deployment of your operator, kinds of jobs or check."""
    from kueuelib.cli.manifests import run

    run(**given)
    return 0


@click.command()
@click.option("--output", type=FILE, help="Write it to this file instead of standard output.")
def dashboards(output: Path | None) -> int:
    """Print a Grafana dashboard for the metrics of the manager, as JSON."""
    from kueuelib.cli.manifests import print_dashboards

    return print_dashboards(output)


COMMANDS = (install, uninstall, crds, manifests, dashboards)
