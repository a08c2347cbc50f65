"""`kueuelib explain --when`: the command and its answer."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import anyio
import attrs
import orjson

from kueuelib.api.meta import Obj, format_time
from kueuelib.api.names import DEFAULT_NAMESPACE
from kueuelib.api.phrases import some
from kueuelib.app.configuration import Configuration
from kueuelib.app.decision_settings import engine_settings
from kueuelib.app.explaining.subject import parse_reference
from kueuelib.app.explaining.when import When, ask_when
from kueuelib.app.part_settings import life_settings
from kueuelib.app.running_configuration import given_configuration, running_configuration
from kueuelib.cli.explain.command import ExplainOptions, state_data
from kueuelib.errors import ConfigError
from kueuelib.runtime import logs
from kueuelib.runtime.connection import reached
from kueuelib.scheduler.object_reasons import (
    PENDING_EVALUATION,
    WAITING_FOR_PODS_READY,
    WAITING_FOR_PREEMPTED,
    WAITING_FOR_QUOTA,
)
from kueuelib.simulator.forecast import FEW, HORIZON, Forecast

_FOR_OTHERS = {
    WAITING_FOR_QUOTA,
    WAITING_FOR_PODS_READY,
    WAITING_FOR_PREEMPTED,
    PENDING_EVALUATION,
}
"""What the end of another job can change."""
DAY, HOUR, MINUTE = 86400.0, 3600.0, 60.0


def run(options: ExplainOptions) -> int:
    """Says when an object will start.

    Raises:
        ConfigError: an argument or a file is not valid.
        KueuelibError: the object does not exist, or the server refused something.
    """
    if options.reference is None or options.file is not None:
        fix = "give KIND/NAME of an object that was submitted"
        raise ConfigError("kueuelib explain --when", "needs an object of the cluster", fix)
    parse_reference(options.reference)
    logs.configure("console", "warning")
    given = given_configuration(options.config)
    answer = anyio.run(_ask, options, options.reference, given)
    if options.output == "json":
        text = orjson.dumps(when_data(answer), option=orjson.OPT_INDENT_2).decode()
    else:
        text = "\n".join(lines(answer))
    sys.stdout.write(text + "\n")
    return 0


async def _ask(options: ExplainOptions, reference: str, given: Configuration | None) -> When:
    timeout = options.server_timeout
    async with reached(options.kubeconfig, timeout, user_agent="kueuelib-explain") as client:
        endpoint = await client.transport.endpoint()
        where = options.namespace or endpoint.namespace or DEFAULT_NAMESPACE
        running = await running_configuration(client, given)
        settings = engine_settings(running.configuration)
        life = life_settings(running.configuration)
        answer = await ask_when(client, parse_reference(reference), where, settings, life)
    return attrs.evolve(answer, notes=(*answer.notes, *running.warnings))


def when_data(answer: When) -> Obj:
    """The answer as JSON; unknown values are null."""
    simulated = answer.forecast
    data: Obj = {"object": answer.title, "at": format_time(answer.now), "p50Seconds": None}
    data |= {"p90Seconds": None, "p50": None, "p90": None, "known": False}
    if answer.state is not None:
        state = state_data(answer.state)
        at = {name: state[name] for name in ("p50", "p90")}
        data |= {**at, "known": state["p90"] is not None, "queueState": state}
        for name, start in (("p50", answer.state.start_p50), ("p90", answer.state.start_p90)):
            data[f"{name}Seconds"] = None if start is None else max(0.0, start - answer.now)
    if simulated is None:
        return {**data, "why": answer.why, "assumed": [], "notes": list(answer.notes)}
    for name, part in (("p50", 0.5), ("p90", 0.9)):
        seconds = simulated.quantile(part)
        data[f"{name}Seconds"] = seconds
        data[name] = None if seconds is None else format_time(answer.now + seconds)
    data["known"] = data["p90Seconds"] is not None
    data["simulations"] = simulated.runs
    data["notStarted"] = dict(simulated.because)
    data["runTimes"] = dict(simulated.sources)
    data["unknownRunTimes"] = [str(key) for key in simulated.unknown]
    return {**data, "assumed": list(_assumed(answer, simulated)), "notes": list(answer.notes)}


def lines(answer: When) -> Iterator[str]:
    """The answer for people."""
    if answer.state is not None:
        yield f"{answer.title}: {answer.state.text}"
        if answer.why:
            yield f"Its start is not known: {answer.why}"
    elif answer.forecast is None:
        yield f"{answer.title} {answer.why}."
    else:
        yield from _answer(answer, answer.forecast)
        yield "Assumed:"
        yield from (f"  {text}" for text in _assumed(answer, answer.forecast))
    yield from (f"Note: {note}" for note in answer.notes)


def _answer(answer: When, simulated: Forecast) -> Iterator[str]:
    p50, p90 = simulated.quantile(0.5), simulated.quantile(0.9)
    if p90 is not None and p50 is not None:
        yield (
            f"{answer.title} starts within {_span(p50)} with a probability of 50 %, "
            f"and within {_span(p90)} with 90 %."
        )
        yield (
            f"That is by {format_time(answer.now + p50)} and {format_time(answer.now + p90)}; "
            f"from {simulated.runs} simulations."
        )
        return
    yield f"The start of {answer.title} cannot be predicted."
    part = len(simulated.waits) / simulated.runs
    reasons = ", ".join(f"{count} {reason}" for reason, count in simulated.because.items())
    yield (
        f"It started within {HORIZON / DAY:.0f} days in {part:.0%} of {simulated.runs} "
        f"simulations; in the others it still waits: {reasons}."
    )
    if p50 is not None:
        yield f"In half of all simulations it started within {_span(p50)}."
    if not _FOR_OTHERS & simulated.because.keys():
        yield "No end of another job would help; ask without --when what does."
    elif simulated.unknown:
        yield "A limit on how long these run would help: maximumExecutionTimeSeconds."


def _assumed(answer: When, simulated: Forecast) -> Iterator[str]:
    alike = simulated.sources.get("alike", 0)
    few = simulated.sources.get("few alike", 0)
    limit = simulated.sources.get("limit", 0)
    longer = simulated.sources.get("longer than all similar jobs", 0)
    if alike or few:
        text = f"{_run(alike + few)} as long as finished ones of the same queue and shape"
        yield f"{text}, {few} of them as fewer than {FEW} did" if few else text
    if limit:
        yield f"{_run(limit)} as long as allowed"
    if longer:
        yield f"{_run(longer)} about as long again, having run longer than all similar ones"
    if simulated.unknown:
        why = "without a limit, and no similar one has finished"
        yield f"no end is known for {some(simulated.unknown)}: {why}"
    if answer.lately:
        yield (
            f"jobs keep coming like the {answer.lately} of the last {answer.hours:.1f} h that "
            f"still exist: {simulated.arrivals} until the start"
        )
    else:
        yield "no other job arrives"
    yield "preempted jobs start from scratch, admission checks pass at once, quotas stay"


def _run(count: int) -> str:
    return "1 job runs" if count == 1 else f"{count} jobs run"


def _span(seconds: float) -> str:
    for unit, size in (("days", DAY), ("h", HOUR), ("min", MINUTE)):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"
