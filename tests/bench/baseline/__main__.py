"""The command line: `python -m tests.bench.baseline --help`."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
from pathlib import Path

import attrs

from . import profile, table
from .flows import FLOWS
from .managers import OWN, Options, parse
from .parts import Load, Patience
from .playing import Upstream
from .run import measure
from .servers import EMBEDDED, REAL, default_server
from .shape import SHAPES

EPILOG = """\
A manager is `kueuelib`, `kueuelib@FOLDER` (the sources of another checkout, or an environment with
its own Python), or any command with {kubeconfig} or {config} in it; LABEL= gives it a name. A
command with {config} is a full manager of Kueue: its release in
$KUBEBUILDER_ASSETS/kueue-manifests.yaml is installed before, and {kubeconfig} is that of its
ServiceAccount. For example:

  python -m tests.bench.baseline --workloads 3000 --runs 5 \\
      --manager kueuelib --manager 'go=minimalkueue --kubeconfig {kubeconfig}' --crds DIR
  python -m tests.bench.baseline --flow jobs --runs 5 --qps 500 \\
      --manager kueuelib --manager 'go=kueue-manager --config={config} --kubeconfig={kubeconfig}'
"""


def main() -> None:
    """Runs what the arguments ask for."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.baseline",
        description="Play upstream's performance benchmark, or a flow of jobs, and print figures.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--manager", action="append", help="may be given several times; they take turns")
    add("--workloads", type=int, default=300, help="about so many (300; upstream has 15000)")
    add("--shape", choices=SHAPES, default="baseline", help="upstream's configuration (baseline)")
    add("--flow", choices=FLOWS, help="Jobs or pods that all fit, until the last one starts")
    add("--count", type=int, help="of a flow (1500 Jobs, 3000 pods)")
    add("--runs", type=int, default=1, help="of each manager (1)")
    add("--server", help="embedded, real, or a kubeconfig; real where $KUBEBUILDER_ASSETS is set")
    add("--qps", type=int, default=2000, help="calls per second that the configuration allows")
    add("--no-webhooks", action="store_true", help="take kueuelib's webhooks away")
    add("--crds", type=Path, help="folder with CRDs for managers without a configuration")
    add("--profile", action="store_true", help="sample where kueuelib's processor time goes")
    add("--folder", type=Path, help="where logs and results are kept")
    add("--quiet", type=float, default=45.0, help="seconds without progress that end a run (45)")
    add("--limit", type=float, default=3600.0, help="seconds that end a run (3600)")
    args = parser.parse_args()
    # An exception, so that everything that was started is stopped.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    specs = [parse(text) for text in args.manager or [OWN]]
    if len({spec.label for spec in specs}) < len(specs):
        parser.error("two managers have the same name: put LABEL= in front of them")
    options = Options(args.qps, not args.no_webhooks, args.crds, args.profile)
    folder = args.folder or Path(tempfile.mkdtemp(prefix="baseline-"))
    server = args.server or default_server()
    load: Load
    if args.flow:
        if server not in (EMBEDDED, REAL):
            parser.error("a flow needs a server of its own")
        load = FLOWS[args.flow].scaled(args.count)
        what = f"{load.count:,} {args.flow}"
    else:
        shape = SHAPES[args.shape].scaled(args.workloads)
        load, what = Upstream(shape), f"{shape.total:,} Workloads"
    print(f"{what}, server: {server}, files in {folder}", flush=True)
    results = []
    for number in range(args.runs):
        for spec in specs:
            work = folder / f"{number + 1}-{spec.label}"
            patience = Patience(args.quiet, args.limit)
            result = measure(spec, server, load, options, work, patience)
            results.append(result)
            (work / "result.json").write_text(json.dumps(attrs.asdict(result), indent=1))
            print(table.line(result), flush=True)
            if args.profile and spec.own:
                print(profile.report(work / "profile.json"), flush=True)
    print("\n" + table.comparison(results) + "\n\n" + table.calls(results))


if __name__ == "__main__":
    main()
