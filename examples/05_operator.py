"""An operator: a CRD, two kinds of children, a finalizer and a status."""

from kueuelib.runtime import (
    ConditionedStatus,
    Context,
    KubeObject,
    Operator,
    Struct,
    crd,
    frozen,
    kinds,
)

app = Operator("sites")


@frozen
class Spec(Struct):
    """What a user asks for."""

    text: str = "hello"


@frozen
class Status(ConditionedStatus):
    """What the operator did."""


@crd("example.com", "v1", plural="sites")
@frozen
class Site(KubeObject):
    """A text with an address."""

    spec: Spec = Spec()
    status: Status = Status()


@app.reconciles(Site, owns=[kinds.CONFIG_MAPS, kinds.SERVICES])
async def site(obj: Site, context: Context) -> None:
    """Apply both children; fields that others changed are set back."""
    await context.apply(kinds.CONFIG_MAPS.new(obj.name, data={"text": obj.spec.text}))
    await context.apply(kinds.SERVICES.new(obj.name, spec={"ports": [{"port": 80}]}))
    context.condition("Ready", True, "Applied")


@site.teardown("example.com/farewell")
async def farewell(obj: Site, context: Context) -> None:
    """Called before the object vanishes."""
    context.event("Normal", "Farewell", f"{obj.name} is deleted")
    print("farewell,", obj.name)


if __name__ == "__main__":
    app.main()

# Prints, when a Site `one` is deleted:
# farewell, one
