"""A class for a kind that exists already, here Deployment: the fields that an operator uses."""

from collections.abc import Mapping
from typing import Any, ClassVar

from kueuelib.runtime import (
    ConditionedStatus,
    Context,
    KubeObject,
    Operator,
    Resource,
    Struct,
    crd,
    decode,
    frozen,
    kinds,
)


@frozen
class DeploymentSpec(Struct):
    """What the operator sets."""

    replicas: int | None = None
    selector: Mapping[str, Any] | None = None
    template: Mapping[str, Any] | None = None


@frozen
class DeploymentStatus(Struct):
    """What the operator reads."""

    ready_replicas: int = 0


@frozen
class Deployment(KubeObject):
    """A Deployment; it has no `@crd`, because the API server has the kind."""

    resource: ClassVar[Resource] = kinds.DEPLOYMENTS
    spec: DeploymentSpec = DeploymentSpec()
    status: DeploymentStatus = DeploymentStatus()


@frozen
class SiteSpec(Struct):
    """What a user asks for."""

    image: str = "nginx:1"
    asleep: bool = False


@frozen
class SiteStatus(ConditionedStatus):
    """What the operator did."""


@crd("example.com", "v1", plural="sites")
@frozen
class Site(KubeObject):
    """A web site that can sleep."""

    spec: SiteSpec = SiteSpec()
    status: SiteStatus = SiteStatus()


app = Operator("sites")


@app.reconciles(Site, owns=[Deployment])
async def site(obj: Site, context: Context) -> None:
    """Scale the Deployment of the site."""
    labels = {"site": obj.name}
    pod = {"containers": [{"name": "web", "image": obj.spec.image}]}
    spec = DeploymentSpec(
        replicas=0 if obj.spec.asleep else 2,
        selector={"matchLabels": labels},
        template={"metadata": {"labels": labels}, "spec": pod},
    )
    applied = await context.apply(Deployment.new(obj.name, spec=spec))
    web = decode(Deployment, applied)
    ready = web.status.ready_replicas
    context.condition("Ready", ready == web.spec.replicas, "Scaled", f"{ready} pods are ready")
