"""Changes for a workload whose levels its topology lacks, or has in another order (KEP-2724)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from functools import partial

import attrs

from kueuelib.api.kueue import Workload
from kueuelib.api.names import (
    PREFERRED_TOPOLOGY,
    REQUIRED_TOPOLOGY,
    SLICE_CONSTRAINTS,
    SLICE_LEVEL,
)
from kueuelib.api.struct import frozen
from kueuelib.api.workload import TopologyRequest
from kueuelib.scheduler.explain.changes import UnsizedChange
from kueuelib.scheduler.explain.own_changes import OfJob, job_of
from kueuelib.scheduler.explain.place_changes import levels_for, pod_sets_text
from kueuelib.scheduler.explain.world import World

_REQUIRED, _PREFERRED, _SLICES, _LAYERS = (
    key.rpartition("/")[2]
    for key in (REQUIRED_TOPOLOGY, PREFERRED_TOPOLOGY, SLICE_LEVEL, SLICE_CONSTRAINTS)
)


@frozen
class NameLevels(OfJob, UnsizedChange):
    """Pod sets ask for other levels of a topology, in the same annotations.

    Attributes:
        pod_sets: those that name the same levels.
        before: pairs of an annotation, without its domain, and the level that it names.
        to: the same with other levels.
    """

    pod_sets: tuple[str, ...]
    before: tuple[tuple[str, str], ...]
    to: tuple[tuple[str, str], ...]

    kind = "topology-levels"

    @property
    def text(self) -> str:
        """What to set."""
        changed = [
            f"{name}: {to} instead of {before}"
            for (name, to), (_, before) in zip(self.to, self.before, strict=True)
            if to != before
        ]
        return f"{', '.join(changed)} in {pod_sets_text(self.pod_sets)}"

    def apply(self, world: World) -> World:
        """The world with that request."""
        workload, levels = world.workloads[self.key], dict(self.to)
        pod_sets = tuple(
            attrs.evolve(one, topology_request=_renamed(one.topology_request, levels))
            if one.name in self.pod_sets and one.topology_request is not None
            else one
            for one in workload.spec.pod_sets
        )
        spec = attrs.evolve(workload.spec, pod_sets=pod_sets)
        return world.with_workload(attrs.evolve(workload, spec=spec))


def _named(request: TopologyRequest) -> tuple[tuple[str, str], ...]:
    """Pairs of an annotation and the level that it names, from the widest to the narrowest."""
    named: list[tuple[str, str]] = []
    for name, level in ((_REQUIRED, request.required), (_PREFERRED, request.preferred)):
        if level and not named:
            named.append((name, level))
    layers = request.podset_slice_required_topology_constraints
    for number, layer in enumerate(layers):
        named.append((f"{_LAYERS}[{number}].topology", layer.topology))
    if request.pod_set_slice_required_topology and not layers:
        named.append((_SLICES, request.pod_set_slice_required_topology))
    return tuple(named)


def _renamed(request: TopologyRequest, levels: Mapping[str, str]) -> TopologyRequest:
    return attrs.evolve(
        request,
        required=levels.get(_REQUIRED, request.required),
        preferred=levels.get(_PREFERRED, request.preferred),
        pod_set_slice_required_topology=levels.get(
            _SLICES, request.pod_set_slice_required_topology
        ),
        podset_slice_required_topology_constraints=tuple(
            attrs.evolve(layer, topology=levels[f"{_LAYERS}[{number}].topology"])
            for number, layer in enumerate(request.podset_slice_required_topology_constraints)
        ),
    )


def other_levels(world: World, workload: Workload) -> Iterator[tuple[NameLevels, ...]]:
    """For each set of wrong levels: changes to the levels that may be meant, the likeliest first.

    Args:
        world: the facts.
        workload: the workload.
    """
    known = levels_for(world, workload)
    for named, names in _wrong(workload, known):
        keys, old = [key for key, _ in named], [level for _, level in named]
        guesses = dict.fromkeys(guess for levels in known for guess in _guesses(old, levels))
        yield tuple(
            NameLevels(
                workload.key,
                tuple(names),
                named,
                tuple(zip(keys, guess, strict=True)),
                job=job_of(workload),
            )
            for guess in guesses
        )


def notes_on_order(world: World, workload: Workload) -> Iterator[str]:
    """Sentences with the right order of levels, for pod sets that name them in the wrong one.

    Args:
        world: the facts.
        workload: the workload.
    """
    known = levels_for(world, workload)
    for named, names in _wrong(workload, known):
        levels = next((each for each in known if {level for _, level in named} <= {*each}), None)
        if levels is not None:
            asked = ", ".join(f"{name}: {level}" for name, level in named)
            yield (
                f"levels are in the wrong order in {pod_sets_text(names)} ({asked}); the order "
                f"of the topology, widest first, is {', '.join(levels)}"
            )


def _wrong(
    workload: Workload, known: Sequence[Sequence[str]]
) -> Iterator[tuple[tuple[tuple[str, str], ...], list[str]]]:
    """The levels that pod sets name although no known topology has them in this order, with these
    pod sets; nothing without a topology.
    """
    pod_sets: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for one in workload.spec.pod_sets:
        if one.topology_request is not None and (named := _named(one.topology_request)):
            pod_sets.setdefault(named, []).append(one.name)
    for named, names in pod_sets.items():
        asked = [level for _, level in named]
        if known and not any(_are_in_order(asked, levels) for levels in known):
            yield named, names


def _guesses(named: Sequence[str], levels: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """The levels of a topology that may be meant, in its order."""
    unknown = [each for each in named if each not in levels]
    close = {each: sorted(levels, key=partial(_likeness, each), reverse=True) for each in unknown}
    for number in range(len(levels) if len(unknown) == 1 else 1):
        meant = [close[each][number] if each in close else each for each in named]
        yield tuple(sorted(meant, key=levels.index))


def _are_in_order(named: Sequence[str], levels: Sequence[str]) -> bool:
    return {*named} <= {*levels} and [*named] == sorted(named, key=levels.index)


def _likeness(one: str, other: str) -> tuple[float, float]:
    """The similarity of two label keys: first of their names alone, then of the whole keys."""
    names = one.rpartition("/")[2], other.rpartition("/")[2]
    return SequenceMatcher(None, *names).ratio(), SequenceMatcher(None, one, other).ratio()
