"""Answers questions about objects of a cluster, or about manifests that were never submitted."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

import attrs

from kueuelib.api import kinds
from kueuelib.api.batch import has_ended
from kueuelib.api.kinds import CRON_JOBS, JOBS, NAMESPACES, PODS, WORKLOADS
from kueuelib.api.kueue import ResourceFlavor
from kueuelib.api.meta import Obj, ObjectKey, Resource, controller_of
from kueuelib.api.names import DEFAULT_PRIORITY_CLASS, PREBUILT_LABEL, QUOTA_RESERVED
from kueuelib.api.nodes import is_of_flavor, is_usable
from kueuelib.api.phrases import some
from kueuelib.app.explaining.gather import (
    ClusterData,
    ObjectNotFound,
    TooFewRights,
    list_kinds,
    missing,
    read_cluster,
)
from kueuelib.app.explaining.nodes import without_places
from kueuelib.app.explaining.starts import (
    creation_problem,
    deletion_problem,
    failed_node_note,
    leaving_note,
    refusal_notes,
    unmanaged,
)
from kueuelib.app.explaining.subject import (
    Document,
    SubjectReference,
    group_problem,
    name_problem,
    own_workload_key,
    owned_workload,
    owning_job,
    workload_of,
    would_be,
)
from kueuelib.app.foreign_finalizers import forced_deletion_of
from kueuelib.controllers.applier import ADMISSION_REFUSED
from kueuelib.errors import ConfigError, Forbidden, NotFound
from kueuelib.jobs.client.following import JobGone, queue_state
from kueuelib.jobs.client.progress import Progress
from kueuelib.jobs.contract.field_rules import identifier, where_named
from kueuelib.jobs.contract.settings import JobSettings
from kueuelib.jobs.pods.reading import PodStage, queue_of, stage_of
from kueuelib.jobs.reconcile.matching import by_age
from kueuelib.jobs.reconcile.priority import PriorityClasses
from kueuelib.jobs.webhooks.rules import with_default_class
from kueuelib.runtime.client import Client
from kueuelib.runtime.clock import SYSTEM_CLOCK, Clock
from kueuelib.scheduler.explain.answer import Explanation, explain
from kueuelib.scheduler.explain.changes import Ends
from kueuelib.scheduler.explain.problems import Problem, Unhonoured, unhonoured_keys
from kueuelib.scheduler.explain.trial import PAIR_STEPS, SearchBudget, TrialResult
from kueuelib.scheduler.explain.world import World
from kueuelib.scheduler.policy import KUEUE, PROTECTOR
from kueuelib.scheduler.settings import DEFAULTS, Settings
from kueuelib.workload import states

# What `kueuelib explain` adds from kinds that no decision depends on: an entry of `REMARKS` each.
# A remark is a sentence for people, which text and JSON show among the notes.


@attrs.frozen
class Remark:
    """Sentences about an answer that need a list of one more kind.

    Attributes:
        kind: what is listed.
        matters: whether an answer needs the list; without it nothing is listed.
        say: makes the sentences out of the raw objects.
    """

    kind: Resource
    matters: Callable[[World, Explanation], bool]
    say: Callable[[World, Explanation, Sequence[Obj]], Iterator[str]]


def _labelled(world: World, explanation: Explanation) -> list[ResourceFlavor]:
    """The flavors of an answer, and of the changes in it, that name nodes by their labels."""
    names = {row.flavor for row in explanation.rows}
    decisions = [one.outcome.admit for one in explanation.changes]
    admissions = [explanation.admission, *(one.admission for one in decisions if one is not None)]
    for admission in admissions:
        for assignment in () if admission is None else admission.pod_set_assignments:
            names.update(assignment.flavors.values())
    flavors = [world.flavors[name] for name in sorted(names & world.flavors.keys())]
    return [flavor for flavor in flavors if flavor.spec.node_labels]


def _about_nodes(world: World, explanation: Explanation, nodes: Sequence[Obj]) -> Iterator[str]:
    """The flavors without a node: admitted pods would stay Pending."""
    usable = [node for node in nodes if is_usable(node)]
    for flavor in _labelled(world, explanation):
        if not any(is_of_flavor(node, flavor) for node in usable):
            labels = ",".join(f"{key}={value}" for key, value in flavor.spec.node_labels.items())
            yield (
                f"flavor {flavor.name} has no usable node now ({labels}): its pods stay Pending "
                "until there is one"
            )


def _ending_pods(world: World, explanation: Explanation) -> dict[str, ObjectKey]:
    """The Workloads of Pods whose end is among the changes, by the UIDs of these Pods."""
    keys = [one.change.key for one in explanation.changes if isinstance(one.change, Ends)]
    return {
        ref.uid: key
        for key in keys
        for ref in world.workloads[key].metadata.owner_references
        if ref.kind == PODS.kind
    }


def _about_pods(world: World, explanation: Explanation, pods: Sequence[Obj]) -> Iterator[str]:
    """The Pods that are being deleted and that would give their quota to the Workload."""
    ends = _ending_pods(world, explanation)
    for pod in pods:
        key = ends.get(pod["metadata"]["uid"])
        if key is not None and stage_of(pod) is PodStage.LEAVING:
            yield (
                f"Workload {key} ends when node {pod['spec']['nodeName']} has ended Pod "
                f"{pod['metadata']['name']}, which is being deleted; if that node is lost: "
                f"{forced_deletion_of(pod)}"
            )


REMARKS = (
    Remark(kinds.NODES, lambda *asked: bool(_labelled(*asked)), _about_nodes),
    Remark(PODS, lambda *asked: bool(_ending_pods(*asked)), _about_pods),
)


async def remarks_on(
    client: Client, world: World, explanations: Sequence[Explanation]
) -> list[tuple[str, ...]]:
    """The remarks on each of some answers; lists only kinds that matter to one of them.

    Args:
        client: whose cluster.
        world: the facts that the answers are about.
        explanations: the answers.
    """
    needed = [each for each in REMARKS if any(each.matters(world, one) for one in explanations)]
    lists = await list_kinds(client, [each.kind for each in needed])

    def on(explanation: Explanation) -> Iterator[str]:
        for remark in needed:
            if not remark.matters(world, explanation):
                continue
            if remark.kind.kind in lists.refused:
                yield f"{remark.kind.plural} were not read: {lists.refused[remark.kind.kind]}"
            else:
                yield from remark.say(world, explanation, lists.of(remark.kind.kind))

    return [tuple(on(explanation)) for explanation in explanations]


# --------------------------------------------------------------------------------------------------

LOOKS = 3
"""How often a Workload is read before the answer is that nothing stands in its way."""
PAUSE = 1.0
"""Seconds between two of these reads."""
PAIR_SECONDS = 1.0
"""The processor time for pairs of changes."""
_JOBS = JobSettings()
_ALL_MANAGED = (
    "a manager whose configuration sets manageJobsWithoutQueueName queues it anyway; "
    "name its configuration with --config"
)


@attrs.frozen
class LastMessage:
    """The last message of the cluster's manager about a waiting Workload."""

    reason: str
    message: str


@attrs.frozen
class ObjectAnswer:
    """What to show about one object.

    Attributes:
        title: the object that was asked about, as kind and name.
        submitted: whether there is a Workload for it in the cluster.
        explanation: the answer of the decision engine; None if the question did not reach it.
        last_message: what the Workload's own condition says.
        problems: what keeps the object from having a Workload.
        unmanaged: why no manager queues the object, and how to have it queued; None if one does.
        notes: what else to know.
        ignored: labels and annotations of the object that have no effect.
        state: what the manager says, if the caller may not read enough to decide.
    """

    title: str
    submitted: bool
    explanation: Explanation | None
    last_message: LastMessage | None = None
    problems: tuple[Problem, ...] = ()
    notes: tuple[str, ...] = ()
    unmanaged: Problem | None = None
    ignored: tuple[Unhonoured, ...] = ()
    state: Progress | None = None

    @property
    def unhonoured(self) -> tuple[Unhonoured, ...]:
        """What the object and those around it ask for but this version does not support."""
        around = () if self.explanation is None else self.explanation.unhonoured
        return (*self.ignored, *around)


async def ask(
    client: Client,
    reference: SubjectReference,
    namespace: str,
    settings: Settings = DEFAULTS,
    jobs: JobSettings = _JOBS,
    clock: Clock = SYSTEM_CLOCK,
    seconds: float = PAIR_SECONDS,
) -> ObjectAnswer:
    """Explains an object of the cluster; sends nothing but GET and LIST.

    Every Workload has a moment when nothing stands in its way: quota became free, and the manager
    is about to decide or to write. So this answer is given only if it still holds after further
    reads, a second apart.

    Args:
        client: whose cluster.
        reference: the object.
        namespace: where it is.
        settings: the manager's settings for decisions.
        jobs: its settings for jobs.
        clock: the time, and how to wait.
        seconds: of processor time for pairs of changes, if no single one is enough.

    Raises:
        ObjectNotFound: it does not exist.
        ConfigError: the cluster serves no queueing API.
        TooFewRights: not even its state in the queue may be read.
    """
    try:
        return await _settled(client, reference, namespace, settings, jobs, clock, seconds)
    except TooFewRights as error:
        state = await served_state(client, reference, namespace, error)
        note = f"no changes were searched for: {error}"
        submitted = bool(state.workload)
        return ObjectAnswer(reference.title, submitted, None, notes=(note,), state=state)


async def served_state(
    client: Client, reference: SubjectReference, namespace: str, error: TooFewRights
) -> Progress:
    """The state of an object in its queue, with the place and the start that a manager serves.

    Args:
        client: whose cluster.
        reference: the object.
        namespace: where it is.
        error: raised if its Workload may not be read either, or its kind is not known.

    Raises:
        ObjectNotFound: it does not exist.
        TooFewRights: see above.
    """
    if reference.resource in (None, CRON_JOBS):
        raise error
    asked = {"kind": reference.resource.kind, "name": reference.name, "namespace": namespace}
    try:
        state = await queue_state(asked, client=client)
    except (JobGone, NotFound) as gone:
        problem = f"{reference.title} does not exist in namespace {namespace}"
        raise ObjectNotFound(problem) from gone
    except Forbidden:
        raise error from None
    if "workload" in state.unknown:
        raise error
    return state


async def _settled(
    client: Client,
    reference: SubjectReference,
    namespace: str,
    settings: Settings,
    jobs: JobSettings,
    clock: Clock,
    seconds: float,
) -> ObjectAnswer:
    """The answer that still holds after further reads."""
    for _ in range(LOOKS - 1):
        cluster = await read_cluster(client, namespace, settings)
        answer = await _look(client, cluster, reference, namespace, clock.now(), jobs, seconds)
        if not _is_free(answer):
            return (await _remarked(client, cluster, [answer], clock.now()))[0]
        await clock.sleep(PAUSE)
    cluster = await read_cluster(client, namespace, settings)
    answer = await _look(client, cluster, reference, namespace, clock.now(), jobs, seconds)
    (answer,) = await _remarked(client, cluster, [answer], clock.now())
    if not _is_free(answer) or any(one.startswith(ADMISSION_REFUSED) for one in answer.notes):
        return answer
    note = f"this was so for {(LOOKS - 1) * PAUSE:g} seconds, and no manager acted: is one running?"
    return attrs.evolve(answer, notes=(*answer.notes, note))


def _is_free(answer: ObjectAnswer) -> bool:
    explanation = answer.explanation
    return explanation is not None and explanation.verdict is TrialResult.ADMITTED


async def _remarked(
    client: Client, cluster: ClusterData, answers: Sequence[ObjectAnswer], now: float
) -> tuple[ObjectAnswer, ...]:
    """The answers with what further kinds of objects say about them."""
    explained = [one for one in answers if one.explanation is not None]
    explanations = [one.explanation for one in explained if one.explanation is not None]
    remarks = await remarks_on(client, cluster.world, explanations)
    notes = {id(one): more for one, more in zip(explained, remarks, strict=True)}
    for one, explanation in zip(explained, explanations, strict=True):
        raw = _named(cluster, explanation.key) if one.submitted else None
        if raw is not None:
            notes[id(one)] += await refusal_notes(client, raw, now)
    return tuple(attrs.evolve(one, notes=(*one.notes, *notes.get(id(one), ()))) for one in answers)


async def _look(
    client: Client,
    cluster: ClusterData,
    reference: SubjectReference,
    namespace: str,
    now: float,
    jobs: JobSettings,
    seconds: float,
) -> ObjectAnswer:
    """The answer of one look.

    Raises:
        ObjectNotFound: the object does not exist; if its namespace does not either, that is said.
    """
    try:
        return await _answer(client, cluster, reference, namespace, now, jobs, seconds)
    except ObjectNotFound:
        known = sorted(cluster.world.namespaces)
        if known and namespace not in known:
            space = ObjectKey("", namespace)
            raise ObjectNotFound(missing(NAMESPACES.kind, space, known)) from None
        raise


async def _answer(
    client: Client,
    cluster: ClusterData,
    reference: SubjectReference,
    namespace: str,
    now: float,
    jobs: JobSettings,
    seconds: float,
) -> ObjectAnswer:
    key = ObjectKey(namespace, reference.name)
    if reference.resource is WORKLOADS:
        raw = _named(cluster, key)
        if raw is None:
            raise ObjectNotFound(_not_found(cluster, key))
        return _existing(cluster, raw, f"Workload {reference.name}", now, jobs, seconds)
    if reference.resource is None:
        owned = owned_workload(reference, namespace, cluster.workloads)
        return _existing(cluster, owned, reference.title, now, jobs, seconds)
    title = reference.title
    if reference.resource is CRON_JOBS:
        made = await _jobs_of(client, key)
        if not made:
            await _get(client, CRON_JOBS, key)
            text = "has no Job now, and its Jobs are what is queued, each when its time comes"
            fix = f"kubectl create job NAME --from=cronjob/{reference.name} -n {namespace}"
            return ObjectAnswer(title, False, None, problems=(Problem(title, text, fix),))
        job = SubjectReference(JOBS, made[-1]["metadata"]["name"])
        reply = await _answer(client, cluster, job, namespace, now, jobs, seconds)
        names = some([one["metadata"]["name"] for one in reversed(made)])
        note = f"a CronJob is not queued itself, but its Jobs are: {names}; this is about the first"
        reply = attrs.evolve(reply, notes=(note, *reply.notes))
        return attrs.evolve(reply, title=f"{reply.title} of {title}")
    obj = await _get(client, reference.resource, key)
    raw, kept = workload_of(obj, cluster.workloads), deletion_problem(obj, reference.resource)
    if raw is not None:
        reply = _existing(cluster, raw, title, now, jobs, seconds)
        if kept is not None:
            stays = f"{kept.problem}; its quota is free as soon as none of its pods runs"
            reply = attrs.evolve(reply, notes=(f"{stays}: {kept.fix}", *cluster.notes))
        of_pods = reference.resource is PODS
        ignored = unhonoured_keys(title, obj["metadata"], of_pods=of_pods)
        return attrs.evolve(reply, ignored=tuple(ignored))
    if reference.resource is PODS:
        owner = owning_job(obj)
        if owner:
            job = SubjectReference(JOBS, owner)
            reply = await _answer(client, cluster, job, namespace, now, jobs, seconds)
            return attrs.evolve(reply, title=f"{title} of {reply.title}")
        pods = [one async for one in client.list_all(PODS, namespace)]
        wrong = group_problem(obj, pods)
        if wrong is not None:
            fix = "submit the missing pods, or correct the annotations of the group"
            return ObjectAnswer(title, False, None, None, (Problem(title, wrong.message, fix),))
    obj = {**obj, "kind": reference.resource.kind}
    alone = unmanaged(obj, title, jobs, cluster.world, submitted=True)
    if alone is not None:
        return _left_alone(obj, title, alone, jobs, cluster.notes)
    if kept is not None:
        return ObjectAnswer(title, False, None, None, (kept,), cluster.notes)
    prebuilt = identifier(obj, PREBUILT_LABEL)
    if prebuilt:
        text = f"does not exist, and {where_named(obj, PREBUILT_LABEL)} of {title} names it"
        problem = Problem(f"Workload {namespace}/{prebuilt}", text, "create it")
        return ObjectAnswer(title, False, None, None, (problem,))
    taken = _named(cluster, own_workload_key(obj, reference.resource))
    misnamed = name_problem(obj, reference.resource, taken)
    refused = misnamed or await creation_problem(client, obj, title, now)
    if isinstance(refused, Problem):
        return ObjectAnswer(title, False, None, None, (refused,), cluster.notes)
    note = (
        "there is no Workload for it yet; this is the answer for the one that it would get "
        "(is a manager running, and does it manage this object?)"
    )
    try:
        (answer,) = _hypothetical(cluster, [Document(obj, title, title)], now, jobs, seconds)
    except ConfigError as error:
        problem = Problem(title, error.problem, error.fix)
        return ObjectAnswer(title, False, None, None, (problem,), cluster.notes)
    more = (refused,) if refused else ()
    return attrs.evolve(answer, notes=(note, *more, *answer.notes))


async def ask_about(
    client: Client,
    documents: tuple[Document, ...],
    now: float,
    settings: Settings = DEFAULTS,
    jobs: JobSettings = _JOBS,
    seconds: float = PAIR_SECONDS,
) -> tuple[ObjectAnswer, ...]:
    """Explains manifests as if all of them were submitted now, in their order.

    Args:
        client: whose cluster.
        documents: the manifests.
        now: seconds since the epoch.
        settings: the manager's settings for decisions.
        jobs: its settings for jobs.
        seconds: of processor time for pairs of changes of each, if no single one is enough.

    Raises:
        ConfigError: one of them is not valid, or the cluster serves no queueing API.
    """
    namespace = documents[0].obj["metadata"]["namespace"]
    cluster = await read_cluster(client, namespace, settings)
    answers = _hypothetical(cluster, documents, now, jobs, seconds)
    return await _remarked(client, cluster, answers, now)


async def _jobs_of(client: Client, cron_job: ObjectKey) -> list[Obj]:
    """The Jobs that a CronJob has made; the newest that has not ended, if there is one, is last."""
    jobs = [one async for one in client.list_all(JOBS, cron_job.namespace)]
    owners = [(controller_of(one) or {}, one) for one in jobs]
    kind = CRON_JOBS.kind
    own = [one for of, one in owners if (of.get("kind"), of.get("name")) == (kind, cron_job.name)]
    return sorted(by_age(own), key=lambda one: not has_ended(one))


async def _get(client: Client, resource: Resource, key: ObjectKey) -> Obj:
    try:
        return await client.get(resource, key)
    except NotFound as error:
        page = client.list_all(resource, key.namespace)
        names = [one["metadata"]["name"] async for one in page]
        raise ObjectNotFound(missing(resource.kind, key, sorted(names))) from error


def _named(cluster: ClusterData, key: ObjectKey) -> Obj | None:
    for raw in cluster.workloads:
        meta = raw["metadata"]
        if (meta.get("namespace", ""), meta["name"]) == key:
            return raw
    return None


def _not_found(cluster: ClusterData, key: ObjectKey) -> str:
    known = sorted(one.name for one in cluster.world.workloads if one.namespace == key.namespace)
    return missing("Workload", key, known)


def _explained(world: World, key: ObjectKey, now: float, seconds: float) -> Explanation:
    def budget() -> SearchBudget:
        return SearchBudget(PAIR_STEPS, seconds=seconds, clock=time.process_time)

    return explain(world, key, now, pairs=budget)


def _existing(
    cluster: ClusterData, raw: Obj, title: str, now: float, jobs: JobSettings, seconds: float
) -> ObjectAnswer:
    key = ObjectKey(raw["metadata"].get("namespace", ""), raw["metadata"]["name"])
    if key not in cluster.world.workloads:
        raise ConfigError(
            title,
            f"its Workload {key} cannot be read",
            "see the notes: " + "; ".join(cluster.notes),
        )
    world = cluster.world
    explanation = _explained(world, key, now, seconds)
    condition = states.condition(raw, QUOTA_RESERVED)
    last = None
    if condition.get("status") == "False":
        last = LastMessage(condition.get("reason", ""), condition.get("message", ""))
    notes = (*leaving_note(raw, jobs), *failed_node_note(world, raw), *cluster.notes)
    _, protector, rest = ("" if last is None else last.message).partition(PROTECTOR)
    if protector and world.settings.preemption is KUEUE:
        text = f"the manager has the preemption policy {rest.split()[0]}, which is left out here"
        notes = (f"{text}; name its configuration with --config", *notes)
    return ObjectAnswer(title, True, explanation, last, (), notes)


def _hypothetical(
    cluster: ClusterData,
    documents: tuple[Document, ...] | list[Document],
    now: float,
    jobs: JobSettings,
    seconds: float,
) -> tuple[ObjectAnswer, ...]:
    world = cluster.world
    outcomes: list[ObjectKey | Problem] = []
    for number, document in enumerate(documents):
        obj = _with_class(document.obj, cluster.classes, jobs)
        workload = would_be(obj, cluster.classes, document.subject, now + number)
        if workload.key in world.workloads and document.obj["kind"] == WORKLOADS.kind:
            raise ConfigError(
                document.subject,
                f"a Workload {workload.key} exists already",
                f"ask about it with workload/{workload.name}, or give it another name",
            )
        alone = unmanaged(document.obj, document.title, jobs, cluster.world, submitted=False)
        if alone is None:
            world = world.with_workload(workload)
            world = without_places(world) if cluster.only_quota else world
        outcomes.append(alone or workload.key)
    return tuple(
        _left_alone(document.obj, document.title, one, jobs, cluster.notes)
        if isinstance(one, Problem)
        else _of_manifest(document, _explained(world, one, now, seconds), cluster.notes)
        for document, one in zip(documents, outcomes, strict=True)
    )


def _with_class(obj: Obj, classes: PriorityClasses, jobs: JobSettings) -> Obj:
    """The object with the priority class that the manager's webhook would write into it."""
    wanted = jobs.defaults_priority_class and DEFAULT_PRIORITY_CLASS in classes.workload
    if not wanted or obj["kind"] == WORKLOADS.kind or controller_of(obj) is not None:
        return obj
    return with_default_class(obj)


def _of_manifest(
    document: Document, explanation: Explanation, notes: tuple[str, ...]
) -> ObjectAnswer:
    meta = {} if document.obj["kind"] == WORKLOADS.kind else document.obj["metadata"]
    of_pods = document.obj["kind"] == PODS.kind
    ignored = tuple(unhonoured_keys(document.title, meta, of_pods=of_pods))
    return ObjectAnswer(document.title, False, explanation, notes=notes, ignored=ignored)


def _left_alone(
    obj: Obj, title: str, why: Problem, jobs: JobSettings, notes: tuple[str, ...]
) -> ObjectAnswer:
    if not queue_of(obj) and not jobs.manage_jobs_without_queue_name:
        notes = (_ALL_MANAGED, *notes)
    return ObjectAnswer(title, False, None, notes=notes, unmanaged=why)
