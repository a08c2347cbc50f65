"""`python -m kueuelib.testing.storm`: plays storms and reports broken laws."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from kueuelib.testing.storm.seed_plan import counts, coverage, summary, timeline

from .campaign import MIXED, campaign, replay, shrunk
from .profiles import PROFILES
from .seed_plan import SeedReport

__all__ = ["main"]

if TYPE_CHECKING:
    _RangeType = click.ParamType[range]
else:
    _RangeType = click.ParamType  # generic since click 8.4


class Seeds(_RangeType):
    """A range of seeds: `FIRST:LAST`, both included."""

    name = "FIRST:LAST"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> range:
        """Return the range that a text names."""
        del param, ctx
        if isinstance(value, range):
            return value
        first, colon, last = str(value).partition(":")
        try:
            seeds = range(int(first), int(last if colon else first) + 1)
        except ValueError:
            self.fail(f"{value}: not a range of seeds; use FIRST:LAST, for example 1:100")
        if not seeds:
            self.fail(
                f"{value}: an empty range of seeds; FIRST:LAST needs a LAST that is not below FIRST"
            )
        return seeds


@click.command()
@click.option("--seeds", type=Seeds(), help="Play these seeds, the last one included.")
@click.option(
    "--profile",
    type=click.Choice([MIXED, *PROFILES]),
    default=MIXED,
    show_default=True,
    help="The family of storms; 'mixed' draws one for each seed.",
)
@click.option("--replay", "replayed", type=int, metavar="SEED", help="Print one seed's timeline.")
@click.option("--shrink/--no-shrink", default=True, help="Shrink a replayed failure first.")
@click.option("--about", default="", help="Print only the lines of a timeline with this text.")
@click.option("--leases", is_flag=True, help="Print the calls for Leases, too.")
@click.option("--workers", default=2, show_default=True, type=click.IntRange(1, 64))
@click.option("--counts", "counted", is_flag=True, help="Print how often each fault struck.")
@click.option("--coverage", "covered", is_flag=True, help="Print which calls each fault met.")
@click.option("--traces", is_flag=True, help="Print a line per seed with the hash of its trace.")
def main(
    *,
    seeds: range | None,
    profile: str,
    replayed: int | None,
    shrink: bool,
    about: str,
    leases: bool,
    workers: int,
    counted: bool,
    covered: bool,
    traces: bool,
) -> None:
    """Try the whole manager in simulated storms, one for each seed."""
    if (seeds is None) == (replayed is None):
        raise click.UsageError("give either --seeds FIRST:LAST or --replay SEED")
    if replayed is not None:
        sys.exit(_replay(replayed, profile, shrink=shrink, about=about, leases=leases))
    assert seeds is not None
    reports = _tour(seeds, profile, workers=workers, traces=traces)
    if counted:
        _say(counts(reports))
    if covered:
        _say(coverage(reports))
    faults = sum(sum(report.faults.values()) for report in reports)
    violations = sum(len(report.violations) for report in reports)
    click.echo(f"{len(reports)} seeds, {faults} faults, {violations} violations")
    sys.exit(1 if violations else 0)


def _tour(seeds: range, profile: str, *, workers: int, traces: bool) -> list[SeedReport]:
    reports = []
    for report in campaign(seeds, profile, workers=workers):
        reports.append(report)
        if traces:
            click.echo(f"seed {report.seed} ({report.profile}): trace {report.trace}")
        _say(summary(report))
        if report.violations:
            family = "" if profile == MIXED else f" --profile {profile}"
            again = f"python -m kueuelib.testing.storm --replay {report.seed}{family}"
            click.echo(f"  its timeline, made short: {again}")
    return reports


def _replay(seed: int, profile: str, *, shrink: bool, about: str, leases: bool) -> int:
    report = replay(seed, profile)
    if report.violations and shrink:
        report = shrunk(report, note=lambda text: click.echo(text, err=True))
    _say(timeline(report, about=about, leases=leases))
    faults = sum(report.faults.values())
    click.echo(f"1 seeds, {faults} faults, {len(report.violations)} violations")
    return 1 if report.violations else 0


def _say(lines: Iterator[str]) -> None:
    for line in lines:
        click.echo(line)


if __name__ == "__main__":
    main()
