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
from .managers import OWN, Options, parse
from .run import Patience, measure
from .servers import default_server
from .shape import BASELINE

EPILOG = """\
A manager is `kueuelib`, `kueuelib@TREE` (the sources of another checkout), or any command with
{kubeconfig} in it; LABEL= in front of it gives it a name. For example:

  python -m tests.bench.baseline --workloads 3000 --runs 5 \\
      --manager kueuelib --manager 'go=minimalkueue --kubeconfig {kubeconfig}' --crds DIR
"""


def main() -> None:
    """Runs what the arguments ask for."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.baseline",
        description="Play upstream's performance benchmark and print figures.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--manager", action="append", help="may be given several times; they take turns")
    add("--workloads", type=int, default=300, help="about so many (300; upstream has 15000)")
    add("--runs", type=int, default=1, help="of each manager (1)")
    add("--server", help="embedded, real, or a kubeconfig; real where $KUBEBUILDER_ASSETS is set")
    add("--qps", type=int, default=2000, help="calls per second allowed to kueuelib (2000)")
    add("--no-webhooks", action="store_true", help="take kueuelib's webhooks away")
    add("--crds", type=Path, help="folder with CRDs for managers other than kueuelib")
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
    shape = BASELINE.scaled(args.workloads)
    server = args.server or default_server()
    print(f"{shape.total:,} Workloads, server: {server}, files in {folder}", flush=True)
    results = []
    for number in range(args.runs):
        for spec in specs:
            work = folder / f"{number + 1}-{spec.label}"
            patience = Patience(args.quiet, args.limit)
            result = measure(spec, server, shape, options, work, patience)
            results.append(result)
            (work / "result.json").write_text(json.dumps(attrs.asdict(result), indent=1))
            print(table.line(result), flush=True)
            if args.profile and spec.own:
                print(profile.report(work / "profile.json"), flush=True)
    print("\n" + table.comparison(results) + "\n\n" + table.calls(results))


if __name__ == "__main__":
    main()
