"""A CustomResourceDefinition out of a class: defaults, limits, a rule in CEL, typed objects."""

import asyncio

from kueuelib.embedded import ApiServer
from kueuelib.runtime import (
    KubeObject,
    ObjectMeta,
    Rule,
    Struct,
    crd,
    crd_of,
    errors,
    field,
    frozen,
    kinds,
    wire,
)
from kueuelib.testing import eventually


@frozen
class Spec(Struct):
    """What a user asks for."""

    owner: str
    size: int = field(default=3, metadata=wire(minimum=1))


@crd(
    "example.com",
    "v1",
    plural="widgets",
    rules=[Rule("spec", "self.size <= 5 || self.owner == 'ann'", "only ann may have more than 5")],
)
@frozen(kw_only=True)
class Widget(KubeObject):
    """A thing with a size."""

    spec: Spec


async def main() -> None:
    """Install the kind, and create objects of it."""
    async with ApiServer() as server, server.client() as client:
        await client.create(kinds.CRDS, crd_of(Widget))
        widgets, meta = client.of(Widget), ObjectMeta(name="one", namespace="default")
        made = await eventually(lambda: widgets.create(Widget(metadata=meta, spec=Spec("bob"))))
        print(made.spec.owner, made.spec.size)
        for spec in (Spec("bob", 9), Spec("bob", 0)):
            try:
                await widgets.apply(Widget(metadata=meta, spec=spec))
            except errors.Invalid as error:
                print(error.details["causes"][0]["message"])


if __name__ == "__main__":
    asyncio.run(main())

# Prints:
# bob 3
# Invalid value: "object": only ann may have more than 5
# Invalid value: 0: spec.size in body should be greater than or equal to 1
