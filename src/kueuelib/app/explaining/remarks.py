"""What `kueuelib explain` adds from kinds that no decision depends on: an entry of `REMARKS` each.

A remark is a sentence for people, which text and JSON show among the notes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import attrs

from kueuelib.api import kinds
from kueuelib.api.kueue import ResourceFlavor
from kueuelib.api.meta import Obj, Resource
from kueuelib.api.nodes import is_of_flavor, is_usable
from kueuelib.app.explaining.gather import list_kinds
from kueuelib.runtime.client import Client
from kueuelib.scheduler.explain.answer import Explanation
from kueuelib.scheduler.explain.world import World


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


REMARKS = (Remark(kinds.NODES, lambda *asked: bool(_labelled(*asked)), _about_nodes),)


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
