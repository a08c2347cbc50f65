"""The operator and its class against an API server of its own."""

from sites import Deployment, Site, SiteSpec, app

from kueuelib.runtime import Client, Obj, PatchType, is_true, kinds
from kueuelib.testing import eventually, running, settled


async def test_a_site_is_ready_when_its_pods_are(kube_client: Client) -> None:
    """The test stands in for the Deployment controller."""
    sites, deployments = kube_client.of(Site), kube_client.of(Deployment)
    async with running(app, kube_client):
        one = await settled(kube_client, await sites.create(Site.new("one", "default")))
        web = await deployments.get(one.key)
        assert (web.spec.replicas, is_true(one, "Ready")) == (2, False)

        body = {"status": {"replicas": 2, "readyReplicas": 2}}
        await deployments.patch(one.key, body, PatchType.MERGE, subresource="status")

        async def ready() -> bool:
            return is_true(await sites.get(one.key), "Ready")

        assert await eventually(ready)
        asleep = (await sites.get(one.key)).evolve(spec=SiteSpec(asleep=True))
        await settled(kube_client, await sites.replace(asleep))
        assert (await deployments.get(one.key)).spec.replicas == 0


async def test_a_replaced_object_keeps_what_the_class_does_not_know(kube_client: Client) -> None:
    """Neither unknown fields nor zeros are lost."""
    labels = {"app": "old"}
    cache: Obj = {"name": "cache", "emptyDir": {}}
    pod = {"containers": [{"name": "c", "image": "i"}], "volumes": [cache]}
    template = {"metadata": {"labels": labels}, "spec": pod}
    spec = {"replicas": 0, "selector": {"matchLabels": labels}, "template": template}
    made = await kube_client.create(
        kinds.DEPLOYMENTS, kinds.DEPLOYMENTS.new("old", "default", spec=spec)
    )

    deployments = kube_client.of(Deployment)
    (old,) = await deployments.list("default")
    labelled = old.metadata.evolve(labels={"team": "web"})
    await deployments.replace(old.evolve(metadata=labelled))
    after = await kube_client.get(kinds.DEPLOYMENTS, old.key)
    assert after["metadata"]["labels"] == {"team": "web"}
    assert after["spec"] == made["spec"]
