"""The requested runs: the cluster as it is, and with each policy laid over it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import attrs

from kueuelib.api.meta import Obj
from kueuelib.app.configuration import Configuration, load_configuration, parse_configuration
from kueuelib.app.decision_settings import engine_settings
from kueuelib.app.part_settings import life_settings
from kueuelib.cli.simulate.checked import check
from kueuelib.errors import ConfigError
from kueuelib.simulator.changes import course, key_of_change
from kueuelib.simulator.cluster import KINDS, key_in, overlaid
from kueuelib.simulator.default_cluster import default_cluster
from kueuelib.simulator.play import BASELINE, Policy
from kueuelib.simulator.readers.manifests import CONFIGURATION, WORK, objects_in
from kueuelib.simulator.readers.source import Source
from kueuelib.simulator.trace import Trace


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
    source: Source,
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
