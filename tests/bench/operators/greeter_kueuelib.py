"""Keeps a ConfigMap with a text for every Greeting."""

from kueuelib.runtime import Condition, Context, KubeObject, Operator, Struct, crd, frozen, kinds

app = Operator("greeter")


@frozen
class Spec(Struct):
    """What a user asks for."""

    text: str


@frozen
class Status(Struct):
    """What the operator reports."""

    observed_generation: int = 0
    conditions: tuple[Condition, ...] = ()


@crd("example.com", "v1", plural="greetings")
@frozen(kw_only=True)
class Greeting(KubeObject):
    """A text to keep."""

    spec: Spec
    status: Status = Status()


@app.reconciles(Greeting, owns=[kinds.CONFIG_MAPS], workers=8)
async def greet(greeting: Greeting, context: Context) -> None:
    """Create the ConfigMap, or bring it back to the text of the Greeting."""
    await context.apply(kinds.CONFIG_MAPS.new(greeting.name, data={"text": greeting.spec.text}))
    context.condition("Ready", True, "Written", "the ConfigMap has the text")
