"""The requested runs: the cluster as it is, and with each policy laid over it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any

import anyio
import attrs

from kueuelib.api.conversion import convert
from kueuelib.api.crd import crd
from kueuelib.api.kinds import KUEUE, NODES, RESOURCE_FLAVORS, V1BETA2, spoken
from kueuelib.api.meta import Obj, key_of
from kueuelib.api.validation import RULES
from kueuelib.app.configuration import Configuration
from kueuelib.app.configuration_reading import load_configuration, parse_configuration
from kueuelib.app.decision_settings import engine_settings
from kueuelib.app.explaining.gather import list_kinds
from kueuelib.app.explaining.nodes import names_topology
from kueuelib.app.part_settings import life_settings
from kueuelib.embedded.decoding import copy_json
from kueuelib.embedded.schema.structural import StructuralSchema
from kueuelib.embedded.schema.typed import TypedSchema
from kueuelib.errors import BadRequest, ConfigError, InvalidObject
from kueuelib.runtime import logs
from kueuelib.runtime.connection import reached
from kueuelib.simulator.changes import course, key_of_change
from kueuelib.simulator.cluster import KINDS, default_cluster, key_in, overlaid
from kueuelib.simulator.play import BASELINE, Policy
from kueuelib.simulator.readers.manifests import CONFIGURATION, WORK, objects_in
from kueuelib.simulator.readers.source import TraceSource
from kueuelib.simulator.trace import Trace
from kueuelib.workload.served import queueing_version

# Checks objects as the API server and the webhooks would: the same schemas, the same rules.

_INDEX = re.compile(r"\[\d+\]")


def check(objects: Iterable[Obj], file: str) -> None:
    """Refuses objects that a cluster would refuse. Their status is not checked.

    Args:
        objects: raw objects; kinds that a simulation does not read are skipped.
        file: where they are from.

    Raises:
        ConfigError: an object has an unknown field or breaks a rule; the message names the first
            one.
    """
    for obj in objects:
        resource = KINDS.get(obj["kind"])
        if resource is None:
            continue
        try:
            problem, fix = _wrong(obj) if resource.group == KUEUE else _mistyped(obj)
        except (InvalidObject, BadRequest) as error:
            problem, fix = str(error), "correct the object"
        if problem:
            raise ConfigError(f"{file}: {obj['kind']} {key_of(obj)}", problem, fix)


def _wrong(given: Obj) -> tuple[str, str]:
    """What is wrong with a queueing object, and the fix; empty if it is valid."""
    convert(given, V1BETA2)
    obj = copy_json({key: value for key, value in given.items() if key != "status"})
    kind, version = obj["kind"], obj["apiVersion"].rpartition("/")[2]
    openapi = _openapi(kind, version)
    schema = _schema(kind, version)
    unknown = schema.prune(obj)
    if unknown:
        return f'unknown field "{unknown[0]}"', _meant(openapi, unknown[0])
    schema.default(obj)
    rules = RULES.get(kind)  # without any, the schema has all of them
    if rules is not None:
        obj = rules.default(obj)
    errors = schema.validate(obj) or (rules.validate(obj, None) if rules is not None else ())
    return "; ".join(map(str, errors)), "correct the field" if len(errors) == 1 else "correct them"


def _mistyped(given: Obj) -> tuple[str, str]:
    """The same for a built-in kind of Kubernetes."""
    resource = KINDS[given["kind"]]
    schema = TypedSchema.of(resource.group, resource.kind)
    obj = copy_json({key: value for key, value in given.items() if key != "status"})
    unknown = schema.prune(obj) if schema is not None else []
    return (f'unknown field "{unknown[0]}"', "remove it") if unknown else ("", "")


@cache
def _openapi(kind: str, version: str) -> Obj:
    versions = crd(kind)["spec"]["versions"]
    entry: Obj = next(one for one in versions if one["name"] == version)
    schema: Obj = entry["schema"]["openAPIV3Schema"]
    return schema


@cache
def _schema(kind: str, version: str) -> StructuralSchema:
    return StructuralSchema.of(_openapi(kind, version))


def _meant(openapi: Obj, path: str) -> str:
    """A known field whose name is similar to an unknown one."""
    *parents, name = _INDEX.sub(".[]", path).split(".")
    node: Any = openapi
    for part in parents:
        node = node["items"] if part == "[]" else node["properties"][part]
    close = get_close_matches(name, node.get("properties", ()), 1)
    return f"did you mean {close[0]}?" if close else "remove it"


# ---- the queues of a live cluster, read with GET and LIST only -----------------------------------


def read_cluster(kubeconfig: Path, server_timeout: float) -> tuple[list[Obj], list[str]]:
    """The objects of a cluster that a simulation reads.

    Args:
        kubeconfig: of the cluster.
        server_timeout: seconds to wait for a server that does not answer.

    Returns:
        raw objects, and notes on kinds that may not be read and are left out.

    Raises:
        ConfigError: the cluster cannot be reached, or serves no queueing API.
        KueuelibError: queues or flavors may not be listed.
    """
    logs.configure("console", "warning")
    return anyio.run(_read, kubeconfig, server_timeout)


async def _read(kubeconfig: Path, server_timeout: float) -> tuple[list[Obj], list[str]]:
    async with reached(kubeconfig, server_timeout, user_agent="kueuelib-simulate") as client:
        version = await queueing_version(client)
        wanted = [spoken(one, version) for one in KINDS.values()]
        lists = await list_kinds(client, wanted)
    lists.insist()
    notes = lists.absences(wanted)
    objects = [
        {"apiVersion": one.api_version, "kind": one.kind, **obj}
        for one in wanted
        for obj in lists.of(one.kind)
    ]
    if NODES.kind in lists.refused and names_topology(objects):
        notes.append("topologies are ignored without nodes, so only quota counts")
        objects = [_without_topology(obj) for obj in objects]
    return objects, notes


def _without_topology(obj: Obj) -> Obj:
    spec = {key: value for key, value in (obj.get("spec") or {}).items() if key != "topologyName"}
    return {**obj, "spec": spec} if obj["kind"] == RESOURCE_FLAVORS.kind else obj


# --------------------------------------------------------------------------------------------------


@attrs.frozen(eq=False)
class Given:
    """Objects from the command line.

    Attributes:
        source: where they are from, for people.
        objects: raw objects.
    """

    source: str
    objects: Sequence[Obj]


def policies(
    cluster: Given | None,
    overlays: Sequence[Path],
    config: Path | None,
    source: TraceSource,
    trace: Trace,
) -> tuple[Policy, ...]:
    """The runs, the one without a policy first.

    Args:
        cluster: objects around the jobs; None: those of the trace, else a default cluster.
        overlays: files of policies.
        config: the manager's configuration; None: its defaults.
        source: the cluster that the trace describes.
        trace: the jobs.

    Raises:
        ConfigError: a file cannot be read, is empty, or an object in it is wrong.
    """
    derived: tuple[Obj, ...] = ()
    objects, configuration = source.objects, load_configuration(config)
    check(objects, "the trace")
    if cluster is not None:
        objects, configuration = _taken(cluster, configuration)
        objects = [obj for obj in objects if obj["kind"] not in WORK]
    if not any(obj.get("kind") == "ClusterQueue" for obj in objects):
        if cluster is not None:
            raise ConfigError(cluster.source, "has no ClusterQueue", "give a file with queues")
        derived = default_cluster(trace, source.machines)
        objects = [*objects, *derived]
    runs = [attrs.evolve(_policy(BASELINE, objects, configuration), derived=derived)]
    for path in overlays:
        name = path.name.split(".")[0]
        if name in {policy.name for policy in runs}:
            raise ConfigError(str(path), f"another run is called {name}", "rename the file")
        overlay, chosen = _taken(Given(str(path), objects_in(path)), configuration)
        if not overlay and chosen is configuration:
            raise ConfigError(str(path), "holds no object", "give a policy, or leave it out")
        for obj in overlay:
            if obj["kind"] not in KINDS:
                raise ConfigError(
                    f"{path}: {obj['kind']} {obj['metadata']['name']}",
                    "cannot replace an object",
                    f"give {', '.join(KINDS)} or {CONFIGURATION}",
                )
        known = {(obj["kind"], key_in(obj)) for obj in objects}
        news = {(obj["kind"], key_in(obj)): None for obj in overlay}
        adds = [f"{kind} {key}" for kind, key in news if (kind, key) not in known]
        runs.append(_policy(name, overlaid(objects, overlay, key_of_change), chosen, adds))
    return tuple(runs)


def _taken(given: Given, configuration: Configuration) -> tuple[list[Obj], Configuration]:
    """The objects, and the Configuration among them, or else the given one."""
    for obj in given.objects:
        if obj["kind"] == CONFIGURATION:
            configuration = parse_configuration(obj, given.source)
    objects = [obj for obj in given.objects if obj["kind"] != CONFIGURATION]
    check(objects, given.source)
    return objects, configuration


def _policy(
    name: str, objects: Sequence[Obj], configuration: Configuration, adds: Sequence[str] = ()
) -> Policy:
    cluster, changes = course(objects, engine_settings(configuration))
    return Policy(name, cluster, life_settings(configuration), changes, tuple(adds))
