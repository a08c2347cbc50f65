"""`kueuelib explain`: the command."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path

import anyio
import attrs

from kueuelib.api.codec import encode
from kueuelib.api.meta import Obj, format_time
from kueuelib.api.names import DEFAULT_NAMESPACE
from kueuelib.api.quantity import format_amount
from kueuelib.app.configuration import Configuration
from kueuelib.app.decision_settings import engine_settings
from kueuelib.app.explaining.asking import PAIR_SECONDS, ObjectAnswer, ask, ask_about
from kueuelib.app.explaining.subject import Document, parse_manifests, parse_reference
from kueuelib.app.part_settings import job_settings
from kueuelib.app.running_configuration import given_configuration, running_configuration
from kueuelib.cli.explain.changes import change_data, pair_data, plain
from kueuelib.errors import ConfigError
from kueuelib.jobs.client.progress import Progress
from kueuelib.runtime import logs
from kueuelib.runtime.clock import SYSTEM_CLOCK
from kueuelib.runtime.connection import ATTEMPT_TIMEOUT, connect, wait_for_server
from kueuelib.runtime.yaml_files import read_text
from kueuelib.scheduler.explain.answer import Explanation
from kueuelib.scheduler.explain.rows import Row, TreeRow
from kueuelib.scheduler.reasons import Reason, condition_reason, render

# ---- the answers of `kueuelib explain` as JSON ---------------------------------------------------


def to_json(answers: Sequence[ObjectAnswer], *, many: bool) -> str:
    """The JSON text: one object, or a list if the question allows several."""
    data = [answer_data(answer) for answer in answers]
    text = json.dumps(data if many else data[0], indent=2, ensure_ascii=False)
    return text + "\n"  # amounts may be beyond 64 bits


def answer_data(answer: ObjectAnswer) -> Obj:
    """One answer."""
    explanation = answer.explanation
    alone = () if answer.unmanaged is None else (answer.unmanaged,)
    data: Obj = {
        "object": answer.title,
        "submitted": answer.submitted,
        "verdict": _verdict(answer),
        "notes": [*(() if answer.explanation is None else answer.explanation.notes), *answer.notes],
        "notHonoured": [attrs.asdict(one) for one in answer.unhonoured],
        "problems": [
            attrs.asdict(one)
            for one in (
                *alone,
                *answer.problems,
                *(explanation.problems if explanation is not None else ()),
            )
        ],
    }
    if answer.last_message is not None:
        data["told"] = attrs.asdict(answer.last_message)
    if answer.state is not None:
        data["queueState"] = state_data(answer.state)
    return data if explanation is None else {**data, **_explanation(explanation)}


def state_data(state: Progress) -> Obj:
    """The state of an object in its queue, as far as the caller may read it."""
    starts = {"p50": state.start_p50, "p90": state.start_p90}
    return {
        "text": state.text,
        "state": state.state.value,
        "reason": state.reason,
        "message": state.message,
        "localQueue": state.queue,
        "place": state.place,
        **{name: None if at is None else format_time(at) for name, at in starts.items()},
        "unknown": dict(state.unknown),
    }


def _verdict(answer: ObjectAnswer) -> str:
    if answer.state is not None:
        return "not evaluated"
    if answer.explanation is not None:
        return answer.explanation.verdict.value
    return "no workload" if answer.unmanaged is None else "not managed"


def _number(usage: float | None) -> float | str | None:
    """Past usage; JSON has no infinity."""
    return "infinite" if usage is not None and math.isinf(usage) else usage


def _explanation(explanation: Explanation) -> Obj:
    data: Obj = {
        "workload": str(explanation.key),
        "priority": explanation.workload.spec.priority or 0,
        "localQueue": explanation.local_queue,
        "clusterQueue": explanation.cluster_queue,
        "position": explanation.position,
        "ahead": [str(key) for key in explanation.ahead],
        "behind": explanation.behind,
        "pastUsage": _number(explanation.usage),
        "usedLess": [
            {"localQueue": str(key), "pastUsage": _number(usage)}
            for key, usage in explanation.used_less
        ],
        "evaluated": explanation.outcome.evaluated,
        "reason": None if explanation.reason is None else reason_data(explanation.reason),
        "victims": [str(key) for key in explanation.outcome.victims],
        "table": [row_data(row) for row in explanation.rows],
        "cohortTree": [tree_row_data(row) for row in explanation.tree],
        "places": [plain(one) for one in explanation.places],
        "placed": [{**plain(one), "text": one.text} for one in explanation.placed],
        "checksAfterQuota": list(explanation.checks),
        "changes": [change_data(one) for one in explanation.changes],
        "pairs": [pair_data(one) for one in explanation.pairs],
        "tried": list(explanation.tried),
        "limits": list(explanation.limits),
    }
    if explanation.when_first is not None:
        first = explanation.when_first
        data["whenFirst"] = {
            "verdict": first.verdict.value,
            "reason": None if first.reason is None else reason_data(first.reason),
        }
    if explanation.admission is not None:
        data["admission"] = encode(explanation.admission)
    if explanation.ending is not None:
        data["finished"] = dict(zip(("reason", "message"), explanation.ending, strict=True))
    checks = explanation.workload.status.admission_checks
    if checks:
        data["checks"] = [
            {"name": one.name, "state": one.state, "message": one.message} for one in checks
        ]
    if explanation.awaited:
        data["awaited"] = [
            {
                "name": one.name,
                "controllerName": one.controller,
                "since": None if one.since is None else format_time(one.since),
                "nextStep": one.next_step,
            }
            for one in explanation.awaited
        ]
    return data


def reason_data(reason: Reason) -> Obj:
    """A reason: its kind, its condition reason, its message, and the tree with all numbers."""
    return {
        "kind": type(reason).__name__,
        "reason": condition_reason(reason),
        "message": render(reason),
        "tree": plain(reason),
    }


def row_data(row: Row) -> Obj:
    """One line of the table; amounts as quantities."""
    amounts = ("requested", "used", "nominal", "available", "capacity")
    data: Obj = {
        "podSet": row.pod_set,
        "count": row.count,
        "minCount": row.min_count,
        "resource": row.resource,
        "flavor": row.flavor,
        **{name: format_amount(row.resource, getattr(row, name)) for name in amounts},
        "borrowingLimit": None,
        "verdict": row.fit.value,
        "reasons": [{"kind": type(one).__name__, "message": one.text} for one in row.reasons],
    }
    if row.borrowing_limit is not None:
        data["borrowingLimit"] = format_amount(row.resource, row.borrowing_limit)
    return data


def tree_row_data(row: TreeRow) -> Obj:
    """One resource and flavor of a place in the tree; amounts as quantities, null for no limit."""
    amounts = {
        "own": row.own,
        "nominal": row.nominal,
        "used": row.used,
        "borrowingLimit": row.borrowing_limit,
        "lendingLimit": row.lending_limit,
        "room": row.room,
    }
    return {
        "kind": row.kind,
        "name": row.name,
        "flavor": row.flavor,
        "resource": row.resource,
        **{
            name: None if amount is None else format_amount(row.resource, amount)
            for name, amount in amounts.items()
        },
        "weight": row.weight,
        "weightedShare": row.weighted_share,
    }


# --------------------------------------------------------------------------------------------------

THOROUGH_SECONDS = 60.0
"""The processor time for pairs of changes with `--thorough`."""


@attrs.frozen(kw_only=True)
class ExplainOptions:
    """The options of `kueuelib explain`, with and without `--when`.

    Attributes:
        reference: `KIND/NAME`, or None.
        file: a file of manifests, `-` for standard input, or None.
        kubeconfig: the cluster; found by kubectl's rules when None.
        config: the manager's configuration file; found in the cluster when None.
        namespace: the namespace; that of the kubeconfig's context when empty.
        output: `text` or `json`.
        server_timeout: seconds to wait for a server that does not answer.
        thorough: whether to take longer for pairs of changes.
    """

    reference: str | None
    file: str | None
    kubeconfig: Path | None
    config: Path | None
    namespace: str
    output: str
    server_timeout: float
    thorough: bool


def run(options: ExplainOptions) -> int:
    """Explains an object or manifests, and prints the answer.

    Raises:
        ConfigError: an argument or a file is not valid.
        KueuelibError: the object does not exist, or the server refused something.
    """
    file = options.file
    if (options.reference is None) is (file is None):
        problem = "nothing to explain was named" if file is None else "an object and a file"
        raise ConfigError("kueuelib explain", problem, "give either KIND/NAME or -f FILE")
    if options.reference is not None:
        parse_reference(options.reference)
    text = None if file is None else _read(file)
    logs.configure("console", "warning")
    answers = anyio.run(_ask, options, text, given_configuration(options.config))
    if options.output == "json":
        sys.stdout.write(to_json(answers, many=file is not None))
        return 0
    from kueuelib.cli.explain.text import show

    show(answers)
    return 0


def _read(file: str) -> str:
    if file == "-":
        return sys.stdin.read()
    return read_text(Path(file), "give the path of a readable manifest")


async def _ask(
    options: ExplainOptions, text: str | None, given: Configuration | None
) -> tuple[ObjectAnswer, ...]:
    timeout, patience = options.server_timeout, max(options.server_timeout, ATTEMPT_TIMEOUT)
    async with await connect(
        options.kubeconfig, user_agent="kueuelib-explain", timeout=patience
    ) as client:
        endpoint = await client.transport.endpoint()
        default = endpoint.namespace or DEFAULT_NAMESPACE
        documents: tuple[Document, ...] = ()
        if text is not None:
            source = "standard input" if options.file == "-" else str(options.file)
            documents = parse_manifests(text, source, options.namespace, default)
        await wait_for_server(client, timeout, starting=False)
        hurried = client.hurried(patience)
        running = await running_configuration(hurried, given)
        settings, jobs = engine_settings(running.configuration), job_settings(running.configuration)
        seconds = THOROUGH_SECONDS if options.thorough else PAIR_SECONDS
        if options.reference is None:
            now = SYSTEM_CLOCK.now()
            answers = await ask_about(hurried, documents, now, settings, jobs, seconds)
        else:
            subject = parse_reference(options.reference)
            where = options.namespace or default
            answer = await ask(hurried, subject, where, settings, jobs, seconds=seconds)
            answers = (answer,)
    return tuple(attrs.evolve(one, notes=(*one.notes, *running.warnings)) for one in answers)
