"""`kueuelib simulate`: the command."""

from __future__ import annotations

import gc
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Self

import attrs
import orjson

from kueuelib.api.meta import Obj, ObjectKey
from kueuelib.api.phrases import some
from kueuelib.api.yaml_text import to_yaml
from kueuelib.cli.progress import StatusLine
from kueuelib.cli.simulate.policies import Given, policies, read_cluster
from kueuelib.cli.simulate.text import CLUSTER, show, show_answers
from kueuelib.errors import ConfigError
from kueuelib.scheduler.explain.placements import nodes_without_level
from kueuelib.simulator.job_lifecycles import Timing
from kueuelib.simulator.live import Listener, Live
from kueuelib.simulator.meter import quota_of
from kueuelib.simulator.parsing import BadValue, Faults, moment, named, not_negative
from kueuelib.simulator.play import BASELINE, Played, Policy, Question, play
from kueuelib.simulator.readers.formats import format_of, reader
from kueuelib.simulator.readers.manifests import objects_in
from kueuelib.simulator.readers.source import TraceSource
from kueuelib.simulator.report.comparison import KINDS, Run, verdicts
from kueuelib.simulator.report.page import page
from kueuelib.simulator.trace import Sizes, Trace, TraceJob, sizes_of

# ---- shows the progress of a simulation on standard error, if that is a terminal -----------------

PAUSE = 0.5
"""Seconds between two lines."""


class ProgressLine(Listener):
    """Shows virtual time, jobs and the estimated rest; a context manager.

    Args:
        name: of the run.
        trace: what is simulated.
    """

    def __init__(self, name: str, trace: Trace) -> None:
        self._name = name
        self._trace = trace
        self._line = StatusLine()
        self._began = self._next = time.monotonic()
        self._arrived = self._ended = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._line.clear()

    def arrived(self, live: Live, now: float) -> None:
        """Counts a job."""
        del live, now
        self._arrived += 1

    def ended(self, live: Live, end: str, now: float) -> None:
        """Counts a job."""
        del live, end, now
        self._ended += 1

    def rested(self, now: float, until: float) -> None:
        """Shows a line from time to time."""
        del until
        if not self._line.shows or time.monotonic() < self._next:
            return
        seconds = time.monotonic() - self._began
        self._next = time.monotonic() + PAUSE
        total, done = 2 * self._trace.count, self._arrived + self._ended
        left = timedelta(seconds=round(seconds * (total - done) / done)) if done else "?"
        passed = timedelta(seconds=round(now - (self._trace.first or 0.0)))
        self._line.show(
            f"{self._name}: {passed} simulated, {self._arrived:,} of {self._trace.count:,} jobs "
            f"arrived, {self._ended:,} ended, about {left} left"
        )


# ---- removes the files of an earlier simulation from a folder ------------------------------------

RESULT = "result.json"
REPORT = "report.html"
TABLES = ("jobs.csv", "queues.csv")


def remove_earlier(folder: Path, given: Iterable[Path]) -> None:
    """Removes the runs of an earlier simulation: those that its own `result.json` names.

    In each of them, the files of a run are removed, and then the folder if it is empty.

    Args:
        folder: for the results; it need not exist.
        given: files that the user gave; none of them is removed.

    Raises:
        ConfigError: its `result.json` is not ours, one of the given files would be removed (then
            nothing is), or a file cannot be removed.
    """
    path = folder / RESULT
    try:
        if not path.exists():
            return
        runs = [*_folders(folder, _runs(path))]
        files = [run / name for run in runs for name in _files(run)]
        files += [folder / REPORT, path]
        _refuse(given, files)
        for file in files:
            file.unlink(missing_ok=True)
        for run in runs:
            if not any(run.iterdir()):
                run.rmdir()
    except OSError as error:
        problem = error.strerror or str(error)
        raise ConfigError(str(folder), problem, "give a folder that can be written") from error


def _folders(folder: Path, names: Iterable[str]) -> Iterator[Path]:
    """The runs that are folders in this folder, not links to others."""
    for name in names:
        run = folder / name
        if run.is_dir() and not run.is_symlink() and run.resolve().parent == folder.resolve():
            yield run


def _files(run: Path) -> tuple[str, ...]:
    """The files that a simulation writes there; derived queues belong to the run without a
    policy.
    """
    return (*TABLES, CLUSTER) if run.name == BASELINE else TABLES


def _refuse(given: Iterable[Path], files: Iterable[Path]) -> None:
    """Refuses to remove a given file, directly or through a link."""
    removed = {_place(file) for file in files}
    for path in given:
        if _place(path) in removed or path.resolve() in removed:
            problem = "would be removed with the results of the earlier simulation"
            raise ConfigError(str(path), problem, "copy the file, or give another --output")


def _place(path: Path) -> Path:
    """The place of the file itself; of a link, that of the link, because that is what is
    removed.
    """
    return path.parent.resolve() / path.name


def _runs(path: Path) -> list[str]:
    try:
        content = orjson.loads(path.read_bytes())
    except orjson.JSONDecodeError:
        content = None
    runs = content.get("runs") if isinstance(content, dict) else None
    if not isinstance(content, dict) or "format" not in content or not isinstance(runs, dict):
        fix = "give another folder, or move the file"
        raise ConfigError(str(path), "is not from a simulation and would be overwritten", fix)
    return [*runs]


# --------------------------------------------------------------------------------------------------

FORMAT = 1
"""The version of `result.json`."""
GC_THRESHOLDS = (50_000, 20, 100)
"""Objects of a simulation form few cycles, so a rare search for them is enough."""


@attrs.frozen
class SimulateOptions:
    """The options of the command.

    Attributes:
        traces: the files of jobs.
        format: of all of them; None: by their names.
        cluster: a file of objects; None: those of the trace, else a default cluster.
        kubeconfig: of a live cluster whose objects to use instead; None: no cluster.
        server_timeout: seconds to wait for it.
        policies: files that are laid over the cluster, each for its own run.
        config: the manager's configuration; None: its defaults.
        output: the folder for the results.
        queue_by: what decides the queue of a job; None: the trace.
        strict: whether a bad line is an error.
        scale: a factor for the work of a synthetic load.
        checks: `NAME=SECONDS` per AdmissionCheck.
        stop_seconds: from an eviction until the quota is free.
        ready_seconds: from admission until pods are ready.
        sample_seconds: the interval of `queues.csv`.
        explain: `JOB@TIME`.
    """

    traces: Sequence[Path]
    format: str | None
    policies: Sequence[Path]
    config: Path | None
    output: Path
    cluster: Path | None = None
    kubeconfig: Path | None = None
    server_timeout: float = 0.0
    queue_by: str | None = None
    strict: bool = False
    scale: float = 1.0
    checks: Sequence[str] = ()
    stop_seconds: float = 0.0
    ready_seconds: float = 0.0
    sample_seconds: float = 60.0
    explain: Sequence[str] = ()


def run_simulation(options: SimulateOptions) -> int:
    """Simulates, writes the files and prints the tables.

    Returns:
        0, or 130 if it was interrupted; the results so far are then written, too.

    Raises:
        ConfigError: an argument or a file is not valid.
    """
    gc.set_threshold(*GC_THRESHOLDS)
    faults, source = Faults(strict=options.strict), TraceSource()
    timing = Timing(options.stop_seconds, options.ready_seconds, _checks(options.checks))
    questions = tuple(question(one, "default") for one in options.explain)
    with Trace(_jobs(options, faults, source)) as trace:
        if not trace.count:
            raise ConfigError(_names(options), f"no job in it{_why(faults)}", "give another trace")
        runs: dict[str, Obj] = {}
        shown: list[Run] = []
        given, notes = _around(options)
        chosen = policies(given, options.policies, options.config, source, trace)
        _check_names(timing, questions, chosen, source)
        source.names.clear()
        sizes = sizes_of(trace, quota_of(chosen[0].cluster))
        remove_earlier(options.output, _given(options))
        for policy in chosen:
            played = _play(trace, policy, options, timing, questions, sizes)
            runs[policy.name] = played.figures
            kind = f"p{len(shown) % KINDS}"
            shown.append(Run(policy.name, played.figures, played.history, played.waits, kind))
            show_answers(policy.name if len(chosen) > 1 else "", played.answers)
            if played.figures["simulation"]["interrupted"]:
                break
        result = {
            "format": FORMAT,
            "trace": _about(options, trace, faults, sizes),
            "notes": [*notes, *_notes(options, chosen), *_ignored(source), *_places(chosen)],
            "not_started": [policy.name for policy in chosen if policy.name not in runs],
            "verdicts": verdicts(runs),
            "runs": runs,
        }
    target = options.output / RESULT
    target.write_bytes(orjson.dumps(result, option=orjson.OPT_INDENT_2) + b"\n")
    (options.output / REPORT).write_text(page(result, shown), "utf-8")
    show(result, shown, options.output, derived=bool(chosen[0].derived))
    interrupted = any(figures["simulation"]["interrupted"] for figures in runs.values())
    return 130 if interrupted else 0


def _around(options: SimulateOptions) -> tuple[Given | None, list[str]]:
    """The objects around the jobs, if any, and what is missing."""
    if options.kubeconfig is not None:
        if options.cluster is not None:
            problem = "cannot be combined with --cluster"
            raise ConfigError("--kubeconfig", problem, "give one of them")
        objects, notes = read_cluster(options.kubeconfig, options.server_timeout)
        return Given(f"the cluster of {options.kubeconfig}", objects), notes
    if options.cluster is not None:
        return Given(str(options.cluster), objects_in(options.cluster)), []
    return None, []


def _jobs(options: SimulateOptions, faults: Faults, source: TraceSource) -> Iterator[TraceJob]:
    jobs = _read(options, faults, source)
    by = options.queue_by
    if by is None:
        yield from (job if job.queue else attrs.evolve(job, queue="default") for job in jobs)
    else:
        for job in jobs:
            yield attrs.evolve(job, queue=named(getattr(job, by), "default"))


def _read(options: SimulateOptions, faults: Faults, source: TraceSource) -> Iterator[TraceJob]:
    readers = [
        (path, reader(options.format or format_of(path), options.scale)) for path in options.traces
    ]
    labels: Counter[str] = Counter()
    for path, read in readers:
        if len(readers) > 1:
            label = named(path.name.split(".")[0], "trace")
            labels[label] += 1
            source.prefix = f"{label}-{labels[label]}-" if labels[label] > 1 else f"{label}-"
        yield from read(path, faults, source)


def _play(
    trace: Trace,
    policy: Policy,
    options: SimulateOptions,
    timing: Timing,
    questions: Sequence[Question],
    sizes: Sizes,
) -> Played:
    folder = options.output / policy.name
    before = signal.getsignal(signal.SIGINT)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if policy.derived:
            (folder / CLUSTER).write_text("---\n".join(map(to_yaml, policy.derived)))
        with ProgressLine(policy.name, trace) as progress:
            began = time.perf_counter()
            played = play(
                trace,
                policy,
                folder,
                timing=timing,
                sizes=sizes,
                sample_seconds=options.sample_seconds,
                questions=questions,
                listeners=[progress],
                stops=_on_interrupt,
            )
            seconds = time.perf_counter() - began
    except OSError as error:
        problem = error.strerror or str(error)
        raise ConfigError(str(folder), problem, "give a folder that can be written") from error
    finally:
        signal.signal(signal.SIGINT, before)
    simulation = played.figures["simulation"]
    speed = {"seconds": seconds, "events_per_second": simulation["events"] / max(seconds, 1e-9)}
    simulation["speed"] = speed
    return played


def _on_interrupt(stop: Callable[[], None]) -> None:
    """The first Ctrl-C ends the simulation with its results so far, the second one the program."""

    def interrupted(number: int, frame: object) -> None:
        del number, frame
        signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.stderr.write("\ninterrupted; writing the results so far\n")
        stop()

    signal.signal(signal.SIGINT, interrupted)


def _about(options: SimulateOptions, trace: Trace, faults: Faults, sizes: Sizes) -> Obj:
    return {
        "files": [str(path) for path in options.traces],
        "jobs": trace.count,
        "first_arrival": trace.first,
        "last_arrival": trace.last,
        "sizes": {"small": sizes.small, "medium": sizes.medium},
        "bad_lines": faults.bad,
        "bad_lines_shown": [str(line) for line in faults.shown],
        "dropped": dict(sorted(faults.dropped.items())),
    }


def _given(options: SimulateOptions) -> list[Path]:
    """The files on the command line."""
    single = (options.cluster, options.config)
    return [*options.traces, *options.policies, *(path for path in single if path is not None)]


def _names(options: SimulateOptions) -> str:
    return ", ".join(map(str, options.traces))


def _why(faults: Faults) -> str:
    if faults.shown:
        return f" that can be read ({faults.shown[0]})"
    return f" that ran ({next(iter(faults.dropped))})" if faults.dropped else ""


def _checks(given: Sequence[str]) -> dict[str, float]:
    delays = {}
    for text in given:
        name, equals, seconds = text.partition("=")
        try:
            delays[name] = not_negative(seconds, "seconds")
        except BadValue as error:
            raise ConfigError(f"--check {text}", error.reason, "write NAME=SECONDS") from error
        if not name or not equals:
            raise ConfigError(f"--check {text}", "names no check", "write NAME=SECONDS")
    return delays


def _check_names(
    timing: Timing, questions: Sequence[Question], chosen: Sequence[Policy], source: TraceSource
) -> None:
    """Refuses options that name missing objects."""
    checks = {name for policy in chosen for name in policy.cluster.checks}
    for name in timing.check_seconds:
        if name not in checks:
            known = f"known: {', '.join(sorted(checks))}" if checks else "leave the option out"
            raise ConfigError(f"--check {name}", "there is no such AdmissionCheck", known)
    for asked in questions:
        if asked.job not in source.names:
            fix = "write the job as the trace names it"
            raise ConfigError(f"--explain {asked.job}", "is not a job of the trace", fix)


def _ignored(source: TraceSource) -> Iterator[str]:
    """Notes on requests of jobs that have no effect."""
    for text, jobs in source.ignored.items():
        yield f"{text} (in {some(jobs)})"


def _places(chosen: Sequence[Policy]) -> list[str]:
    """Notes on nodes that get no pods."""
    worlds = [policy.cluster.world for policy in chosen]
    texts = [one.text for world in worlds for one in nodes_without_level(world)]
    return [*dict.fromkeys(texts)]


def _notes(options: SimulateOptions, chosen: Sequence[Policy]) -> list[str]:
    """Effects of a policy that may be unintended."""
    overlaid = zip(options.policies, chosen[1:], strict=True)
    return [f"{path} adds {what}" for path, policy in overlaid for what in policy.adds]


def question(text: str, namespace: str = "") -> Question:
    """The question in `--explain`.

    Args:
        text: the value of the option.
        namespace: of a job that is named without one.

    Raises:
        ConfigError: it does not name a job and a time.
    """
    job, at, when = text.rpartition("@")
    named, _, name = job.rpartition("/")
    fix = "write [NAMESPACE/]JOB@TIME"
    if not at or not name:
        raise ConfigError(f"--explain {text}", "does not name a job and a time", fix)
    try:
        return Question(ObjectKey(named or namespace, name), moment(when, "time"))
    except BadValue as error:
        raise ConfigError(f"--explain {text}", error.reason, fix) from error
