"""The commands and their options; the work is in the module of each command."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from kueuelib import __version__

F = TypeVar("F", bound=Callable[..., Any])

FILE = click.Path(path_type=Path)


class _Format(click.ParamType[str]):
    """A format of traces; the readers that know them are loaded only when it is needed."""

    name = "format"

    def _choice(self) -> click.Choice[str]:
        from kueuelib.simulator.readers.formats import FORMATS

        return click.Choice([*FORMATS])

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str | None:
        """The formats, for the help."""
        return self._choice().get_metavar(param, ctx)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The format, or a mistake in the command line."""
        return self._choice().convert(value, param, ctx)


class _Number(click.FloatRange):
    """A number in a range; "nan" and "inf" are none."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """The number, or a mistake in the command line."""
        found: float = super().convert(value, param, ctx)
        if not math.isfinite(found):
            self.fail(f"{value!r} is not a finite number.", param, ctx)
        return found


def _kubeconfig(command: F) -> F:
    return click.option(
        "--kubeconfig",
        type=FILE,
        help="Kubeconfig of the cluster; default: $KUBECONFIG, ~/.kube/config, then in-cluster.",
    )(command)


def _server_timeout(command: F) -> F:
    return click.option(
        "--server-timeout",
        type=_Number(min=0),
        default=60.0,
        show_default=True,
        help="Seconds to wait for a server that does not answer yet.",
    )(command)


def _logging(command: F) -> F:
    level = click.option(
        "--log-level",
        type=click.Choice(["debug", "info", "warning", "error"]),
        default="info",
        show_default=True,
        help="What is worth a line.",
    )
    form = click.option(
        "--log-format",
        type=click.Choice(["console", "json"]),
        default="console",
        show_default=True,
        help="Lines for people or for machines.",
    )
    return form(level(command))


def _recorded(command: F) -> F:
    size = click.option(
        "--record-size",
        type=_Number(min=0, min_open=True),
        default=64.0,
        show_default=True,
        help="MiB after which another file of the recording is begun.",
    )
    files = click.option(
        "--record-files",
        type=click.IntRange(1),
        default=8,
        show_default=True,
        help="How many files are kept; the oldest are removed.",
    )
    names = click.option(
        "--hash-names",
        is_flag=True,
        help="Record other names instead of those of objects, in the same order.",
    )
    return size(files(names(command)))


def _changes(command: F) -> F:
    most = click.option(
        "--changes",
        type=click.IntRange(0),
        default=10,
        show_default=True,
        help=(
            "For how many Workloads to look for the smallest change, the first of each queue first."
        ),
    )
    config = click.option(
        "--config", type=FILE, help="The manager's configuration, where it changes decisions."
    )
    return most(config(command))


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="kueuelib", message="%(prog)s %(version)s")
def app() -> None:
    """Job queueing for Kubernetes, and the framework it is built on."""


@app.command()
@click.option(
    "--jobs",
    type=click.IntRange(1, 200),
    default=12,
    show_default=True,
    help="How many Jobs to queue.",
)
@click.option("--plain", is_flag=True, help="Print lines instead of a live table.")
@click.option("--keep", is_flag=True, help="Keep the servers' log files and say where they are.")
def demo(jobs: int, plain: bool, keep: bool) -> int:
    """Queue Jobs on a simulated cluster with the real manager, and watch them run."""
    from kueuelib.cli.demo.play import run

    return run(jobs, plain=plain, keep=keep)


@app.group(invoke_without_command=True)
@click.option("--kubeconfig", type=FILE, help="Where to write a kubeconfig.  [required]")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    show_default=True,
    help="The port on 127.0.0.1; 0 takes a free one.",
)
@click.option(
    "--data-dir", type=FILE, help="Keep the state in this folder; otherwise it is in memory."
)
@click.option("--load", "manifests", type=FILE, help="Begin with the objects of this file.")
@click.option("--simulate", is_flag=True, help="Also play nodes, kubelets and the Job controller.")
@click.option(
    "--authorization",
    type=click.Choice(["always", "rbac"]),
    default="always",
    show_default=True,
    help="Who may do what: everybody with credentials everything, or what roles say.",
)
@click.option(
    "--service",
    "services",
    multiple=True,
    metavar="NAMESPACE/NAME=HOST:PORT",
    help="Where the webhooks of a Service are; may be given several times.",
)
@click.pass_context
def apiserver(
    context: click.Context,
    kubeconfig: Path | None,
    port: int,
    data_dir: Path | None,
    manifests: Path | None,
    simulate: bool,
    authorization: str,
    services: tuple[str, ...],
) -> int:
    """Serve the Kubernetes API on 127.0.0.1."""
    if context.invoked_subcommand is not None:
        return 0
    if kubeconfig is None:
        raise click.UsageError("Missing option '--kubeconfig'.", context)
    from kueuelib.cli.apiserver import run

    run(
        port,
        kubeconfig,
        data_dir,
        manifests,
        simulate=simulate,
        authorization=authorization,
        services=dict(_pair(each) for each in services),
    )
    return 0


def _pair(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    return name, value


@apiserver.command()
@_kubeconfig
@_server_timeout
def dump(kubeconfig: Path | None, server_timeout: float) -> int:
    """Print every object of a server as YAML, for apiserver --load."""
    from kueuelib.cli.dump import run

    run(kubeconfig, server_timeout)
    return 0


@app.command()
@_kubeconfig
@click.option(
    "--webhook-url",
    help="https://HOST:PORT of the manager's webhooks; default: the Service in the cluster.",
)
@click.option(
    "--namespace", default="kueue-system", show_default=True, help="The manager's namespace."
)
@click.option("--image", help="Of the manager's Deployment; default: kueuelib:VERSION.")
@click.option(
    "--replicas",
    type=click.IntRange(min=1),
    default=2,
    show_default=True,
    help="Pods of the manager: one decides, the others wait warm.",
)
@click.option("--config", type=FILE, help="The manager's configuration.")
@click.option("--service-monitor", is_flag=True, help="Write a ServiceMonitor for Prometheus.")
@click.option("--print", "print_only", is_flag=True, help="Print the manifests, change nothing.")
@click.option("--chart", type=FILE, help="Write a Helm chart into this folder, change nothing.")
@click.option("--kustomize", type=FILE, help="Write a kustomize base into this folder.")
@_server_timeout
def install(
    kubeconfig: Path | None,
    webhook_url: str | None,
    namespace: str,
    image: str | None,
    replicas: int,
    config: Path | None,
    service_monitor: bool,
    print_only: bool,
    chart: Path | None,
    kustomize: Path | None,
    server_timeout: float,
) -> int:
    """Create or update the manager and all it needs; may be run again at any time."""
    from kueuelib.cli.install import Options, run, write_packages

    options = Options(image, replicas, config, service_monitor)
    if chart or kustomize:
        write_packages(options, namespace, chart, kustomize)
        return 0
    run(kubeconfig, webhook_url, namespace, server_timeout, options, print_only=print_only)
    return 0


@app.command()
@_kubeconfig
@click.option(
    "--namespace", default="kueue-system", show_default=True, help="The manager's namespace."
)
@click.option("--force", is_flag=True, help="Also while Workloads hold quota.")
@click.option("--keep-crds", is_flag=True, help="Keep the CRDs with all queues and Workloads.")
@_server_timeout
def uninstall(
    kubeconfig: Path | None, namespace: str, force: bool, keep_crds: bool, server_timeout: float
) -> int:
    """Remove the manager and all that was installed, unless Workloads hold quota.

    What waits stays as it is: Jobs suspended, Pods gated. Stop a manager that runs elsewhere first.
    """
    from kueuelib.cli.uninstall import run

    run(kubeconfig, namespace, server_timeout, force=force, keep_kinds=keep_crds)
    return 0


@app.command()
@_kubeconfig
@click.option("--config", type=FILE, help="Configuration (config.kueue.x-k8s.io).")
@click.option(
    "--record",
    "recorded",
    type=FILE,
    metavar="FILE",
    help="Record what decisions follow from, for kueuelib replay.",
)
@_recorded
@click.option("--print-config", is_flag=True, help="Print the configuration with its defaults.")
@_logging
@_server_timeout
def manager(
    kubeconfig: Path | None,
    config: Path | None,
    recorded: Path | None,
    record_size: float,
    record_files: int,
    hash_names: bool,
    print_config: bool,
    log_format: str,
    log_level: str,
    server_timeout: float,
) -> int:
    """Run the queueing manager until SIGTERM."""
    from kueuelib.cli.manager import run

    recording = None
    if recorded is not None:
        from kueuelib.recording.writer import MANAGER, MEBI, RecordingOptions

        size = int(record_size * MEBI)
        recording = RecordingOptions(recorded, {}, MANAGER, size, record_files, hash_names)
    return run(
        kubeconfig,
        config,
        log_format,
        log_level,
        server_timeout,
        recording,
        print_config=print_config,
    )


@app.command()
@click.argument("file", type=FILE)
@_kubeconfig
@click.option("--config", type=FILE, help="The configuration of the manager that decides.")
@_recorded
@_logging
@_server_timeout
def record(
    file: Path,
    kubeconfig: Path | None,
    config: Path | None,
    record_size: float,
    record_files: int,
    hash_names: bool,
    log_format: str,
    log_level: str,
    server_timeout: float,
) -> int:
    """Record what any manager decides upon, from watches alone, until SIGTERM.

    It only reads, on any cluster that has the objects.
    """
    from kueuelib.cli.record import run
    from kueuelib.recording.writer import MEBI, WATCHES, RecordingOptions

    size = int(record_size * MEBI)
    recording = RecordingOptions(file, {}, WATCHES, size, record_files, hash_names)
    return run(recording, kubeconfig, config, log_format, log_level, server_timeout)


@app.command()
@click.argument("file", type=FILE)
@click.option("--until", metavar="TIME", help="Stop there: seconds since the epoch, or a date.")
@click.option(
    "--explain",
    "explained",
    multiple=True,
    metavar="JOB@TIME",
    help="Why a job waited at a time; may be given several times.",
)
@click.option(
    "--with",
    "policies",
    type=FILE,
    multiple=True,
    metavar="FILE",
    help="Objects to lay over the recorded ones, and simulate from there on.",
)
@click.option("--output", type=FILE, help="The folder for the results of --with.")
@click.option("--to-scenario", is_flag=True, help="Print the objects at that time as a scenario.")
def replay(
    file: Path,
    until: str | None,
    explained: tuple[str, ...],
    policies: tuple[Path, ...],
    output: Path | None,
    to_scenario: bool,
) -> int:
    """Decide what was recorded again, and compare every plan with the recorded one."""
    from kueuelib.cli.replay.command import Options, run

    return run(Options(file, until, explained, policies, output, to_scenario))


@app.command()
@click.option("--output", type=FILE, help="Write one file per kind into this folder.")
def crds(output: Path | None) -> int:
    """Print the CustomResourceDefinitions as YAML, or write them to a folder."""
    from kueuelib.cli.crds import run

    run(output)
    return 0


@app.command()
@click.argument("reference", metavar="[KIND/NAME]", required=False)
@click.option("-f", "--filename", metavar="FILE", help='Manifests not submitted yet; "-": stdin.')
@click.option("-n", "--namespace", default="", help="Default: that of the kubeconfig's context.")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="A table for people, or everything for machines.",
)
@click.option(
    "--config",
    type=FILE,
    help=(
        "The manager's configuration (fairSharing, admissionFairSharing, preemption, "
        "waitForPodsReady, manageJobsWithoutQueueName)."
    ),
)
@click.option("--when", is_flag=True, help="Say when it will start, from many simulations.")
@_kubeconfig
@_server_timeout
def explain(
    reference: str | None,
    filename: str | None,
    when: bool,
    namespace: str,
    output: str,
    config: Path | None,
    kubeconfig: Path | None,
    server_timeout: float,
) -> int:
    """Say why a Job, Pod or Workload waits, and the smallest change that would admit it.

    It only reads, on any cluster that has the objects. KIND is job, pod or workload.
    """
    if when:
        from kueuelib.cli.explain.when import run as run_when

        arguments = (reference, filename, kubeconfig, config, namespace, output, server_timeout)
        return run_when(*arguments)
    from kueuelib.cli.explain.command import run

    return run(reference, filename, kubeconfig, config, namespace, output, server_timeout)


@app.command()
@click.option("-q", "--localqueue", default="", metavar="NAME", help="Only this LocalQueue.")
@click.option(
    "-c",
    "--clusterqueue",
    default="",
    metavar="NAME",
    help="Only this ClusterQueue, with the Workloads of all namespaces unless -n names one.",
)
@click.option("-n", "--namespace", default="", help="Default: that of the kubeconfig's context.")
@click.option("-A", "--all-namespaces", is_flag=True, help="The Workloads of all namespaces.")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "wide", "json"]),
    default="text",
    show_default=True,
    help="A table, a wider one, or everything for machines.",
)
@_changes
@_kubeconfig
@_server_timeout
def pending(
    localqueue: str,
    clusterqueue: str,
    namespace: str,
    all_namespaces: bool,
    output: str,
    changes: int,
    config: Path | None,
    kubeconfig: Path | None,
    server_timeout: float,
) -> int:
    """List the Workloads that wait, in the order of their queues, with verdicts and changes.

    It only reads. What it may not read is named, and left out of the answer.
    """
    from kueuelib.cli.pending.command import run

    return run(
        localqueue,
        clusterqueue,
        namespace,
        output,
        changes,
        kubeconfig,
        config,
        server_timeout,
        everywhere=all_namespaces,
    )


@app.command()
@click.option("--serve", is_flag=True, help="Serve the page on 127.0.0.1, and keep it up to date.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    show_default=True,
    help="The port for --serve; 0 takes a free one.",
)
@click.option(
    "-n",
    "--namespace",
    default="",
    help="Where to read Workloads and LocalQueues if you may not read those of all namespaces.",
)
@_changes
@_kubeconfig
@_server_timeout
def report(
    serve: bool,
    port: int,
    namespace: str,
    changes: int,
    config: Path | None,
    kubeconfig: Path | None,
    server_timeout: float,
) -> int:
    """Print one HTML page: quota, what waits and why, what runs, what was evicted.

    It only reads. What it may not read is named on the page.
    """
    from kueuelib.cli.report.command import run

    return run(kubeconfig, config, namespace, changes, server_timeout, serve=serve, port=port)


@app.command()
@click.option("--output", type=FILE, help="Write it to this file instead of standard output.")
def dashboards(output: Path | None) -> int:
    """Print a Grafana dashboard for the metrics of the manager, as JSON."""
    from kueuelib.cli.dashboards import run

    return run(output)


@app.command()
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Lines for people, or everything for machines.",
)
@click.option("--config", type=FILE, help="The manager's configuration.")
@click.option(
    "--self",
    "own",
    is_flag=True,
    help="Check your own permissions, for a manager that runs with this kubeconfig.",
)
@_kubeconfig
@_server_timeout
def doctor(
    output: str, config: Path | None, own: bool, kubeconfig: Path | None, server_timeout: float
) -> int:
    """Say what is wrong with an installation, and which command mends it.

    It writes nothing. Exit code 0: nothing but hints, 3: warnings, 4: errors.
    """
    from kueuelib.cli.doctor.command import run

    return run(kubeconfig, config, output, server_timeout, own=own)


@app.command()
@click.argument("traces", metavar="TRACE...", nargs=-1, required=True, type=FILE)
@click.option("--format", help="Of all traces; default: what their names say.", type=_Format())
@click.option(
    "--cluster", type=FILE, help="Objects around the jobs; default: a cluster made for the trace."
)
@click.option(
    "--kubeconfig",
    type=FILE,
    help="Take queues and flavors from this live cluster instead, which is only read.",
)
@_server_timeout
@click.option(
    "--policy",
    "policies",
    type=FILE,
    multiple=True,
    help="Objects to lay over the cluster, for a run of its own; may be given several times.",
)
@click.option("--config", type=FILE, help="The manager's configuration.")
@click.option("--output", type=FILE, required=True, help="The folder for the results.")
@click.option(
    "--queue-by",
    type=click.Choice(["user", "vc", "group", "queue"]),
    help="Which field of a trace becomes the LocalQueue of a job.",
)
@click.option("--strict", is_flag=True, help="Refuse a trace with a bad line.")
@click.option(
    "--scale",
    type=_Number(min=0, min_open=True),
    default=1.0,
    show_default=True,
    help="How many times the jobs of a synthetic load.",
)
@click.option(
    "--check",
    "checks",
    multiple=True,
    metavar="NAME=SECONDS",
    help="How long an AdmissionCheck takes; may be given several times.  [default: 0]",
)
@click.option(
    "--stop-seconds",
    type=_Number(min=0),
    default=0.0,
    show_default=True,
    help="From the eviction of a running job until its quota is free.",
)
@click.option(
    "--ready-seconds",
    type=_Number(min=0),
    default=0.0,
    show_default=True,
    help="From admission until all pods are ready, where the configuration waits for them.",
)
@click.option(
    "--sample-seconds",
    type=_Number(min=0, min_open=True),
    default=60.0,
    show_default=True,
    help="At most one row per ClusterQueue in this time in queues.csv.",
)
@click.option(
    "--explain",
    "explained",
    multiple=True,
    metavar="JOB@TIME",
    help="Why a job waits at a time of the trace; may be given several times.",
)
def simulate(
    traces: tuple[Path, ...],
    format: str | None,
    cluster: Path | None,
    kubeconfig: Path | None,
    server_timeout: float,
    policies: tuple[Path, ...],
    config: Path | None,
    output: Path,
    queue_by: str | None,
    strict: bool,
    scale: float,
    checks: tuple[str, ...],
    stop_seconds: float,
    ready_seconds: float,
    sample_seconds: float,
    explained: tuple[str, ...],
) -> int:
    """Run a trace of jobs through the scheduler in virtual time, under any number of policies."""
    from kueuelib.cli.simulate.command import Options, run

    options = Options(
        traces=traces,
        format=format,
        cluster=cluster,
        kubeconfig=kubeconfig,
        server_timeout=server_timeout,
        policies=policies,
        config=config,
        output=output,
        queue_by=queue_by,
        strict=strict,
        scale=scale,
        checks=checks,
        stop_seconds=stop_seconds,
        ready_seconds=ready_seconds,
        sample_seconds=sample_seconds,
        explain=explained,
    )
    return run(options)


@app.command()
@click.argument("reference", metavar="MODULE[:NAME]")
@_kubeconfig
@click.option("--config", type=FILE, help="The manager's configuration, for what both share.")
@click.option("--namespace", help="Where certificate and lease are kept; default: as the manager.")
@click.option("--webhook-address", metavar="HOST:PORT", help="Default: as in the configuration.")
@click.option("--health-address", metavar="HOST:PORT", help='Probes; "0" turns them off.')
@click.option("--metrics-address", metavar="HOST:PORT", help='Metrics; "0" turns them off.')
@click.option("--leader-elect/--no-leader-elect", default=None, help="Whether to wait for a lease.")
@_logging
@_server_timeout
def run(
    reference: str,
    kubeconfig: Path | None,
    config: Path | None,
    namespace: str | None,
    webhook_address: str | None,
    health_address: str | None,
    metrics_address: str | None,
    leader_elect: bool | None,
    log_format: str,
    log_level: str,
    server_timeout: float,
) -> int:
    """Run the integration of your own kind of jobs, beside a manager that schedules.

    MODULE is a Python module or the path of a .py file that holds a subclass of GenericJob or an
    Integration; NAME is needed when it holds several. A module may hold admission checks instead,
    which then all run; they take --kubeconfig, --namespace, --leader-elect, --server-timeout and
    the options of the log.
    """
    from kueuelib.cli.run import Options, run

    options = Options(namespace, webhook_address, health_address, metrics_address, leader_elect)
    return run(reference, kubeconfig, config, options, log_format, log_level, server_timeout)


@app.command()
@click.argument("reference", metavar="MODULE[:NAME]")
@click.option(
    "--namespace", default="kueue-system", show_default=True, help="The manager's namespace."
)
@click.option(
    "--image",
    default="kueuelib:latest",
    show_default=True,
    help="Of the Deployment; it has to hold the module.",
)
@click.option(
    "--webhook-url",
    help="https://HOST:PORT of a process outside the cluster; then there is no Deployment.",
)
@click.option("--plugin", is_flag=True, help="For the bundled manager: permissions only.")
def manifests(
    reference: str, namespace: str, image: str, webhook_url: str | None, plugin: bool
) -> int:
    """Print the RBAC, webhooks and Deployment of the integration of your own kind of jobs."""
    from kueuelib.cli.manifests import run

    run(reference, namespace, image, webhook_url, plugin=plugin)
    return 0
