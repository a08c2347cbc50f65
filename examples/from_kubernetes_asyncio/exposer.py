"""A Service for each Deployment that asks for one, with models; start it with `kueuelib run`."""

from kubernetes_asyncio.client import (
    V1Deployment,
    V1ObjectMeta,
    V1Service,
    V1ServicePort,
    V1ServiceSpec,
)

from kueuelib.runtime import Context, FieldError, Operator

PORT = "example.com/port"
app = Operator("exposer")


@app.reconciles(V1Deployment, owns=[V1Service])
async def expose(deployment: V1Deployment, context: Context) -> None:
    """Called when the Deployment or its Service has changed."""
    port = (deployment.metadata.annotations or {}).get(PORT)
    if port is not None:
        service = V1Service(
            metadata=V1ObjectMeta(name=deployment.metadata.name),
            spec=V1ServiceSpec(
                selector=deployment.spec.selector.match_labels,
                ports=[V1ServicePort(port=int(port))],
            ),
        )
        await context.apply(service)
    await context.prune(V1Service)


@app.validates(V1Deployment)
def check(deployment: V1Deployment) -> list[FieldError]:
    """Called before a Deployment is stored."""
    port = (deployment.metadata.annotations or {}).get(PORT, "1")
    if port.isdigit():
        return []
    path = f"metadata.annotations[{PORT}]"
    return [FieldError(path, "FieldValueInvalid", f'Invalid value: "{port}": must be a number')]
