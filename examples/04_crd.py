"""A CustomResourceDefinition out of a class: defaults, limits, a rule in CEL, typed objects."""

import asyncio

from kueuelib import runtime as rt
from kueuelib.embedded import ApiServer
from kueuelib.testing import eventually


@rt.frozen
class Spec(rt.Struct):
    """What a user asks for."""

    owner: str
    size: int = rt.field(default=3, metadata=rt.wire(minimum=1))


@rt.crd(
    "example.com",
    "v1",
    plural="widgets",
    rules=[
        rt.Rule("spec", "self.size <= 5 || self.owner == 'ann'", "only ann may have more than 5")
    ],
)
@rt.frozen(kw_only=True)
class Widget(rt.KubeObject):
    """A thing with a size."""

    spec: Spec


async def main() -> None:
    """Install the kind, and create objects of it."""
    async with ApiServer() as server, server.client() as client:
        await client.create(rt.kinds.CRDS, rt.crd_of(Widget))
        widgets, one = client.of(Widget), Widget.new("one", "default", spec=Spec("bob"))
        made = await eventually(lambda: widgets.create(one))
        print(made.spec.owner, made.spec.size)
        for spec in (Spec("bob", 9), Spec("bob", 0)):
            try:
                await widgets.apply(one.evolve(spec=spec))
            except rt.errors.Invalid as error:
                print(error.details["causes"][0]["message"])


if __name__ == "__main__":
    asyncio.run(main())

# Prints:
# bob 3
# Invalid value: only ann may have more than 5
# Invalid value: 0: spec.size in body should be greater than or equal to 1
