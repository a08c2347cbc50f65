"""What an installation makes of a cluster that has something already."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from kueuelib.api import kinds
from kueuelib.api.crd import all_crds
from kueuelib.api.meta import Obj, ObjectKey, Resource
from kueuelib.app.deployment import Deployed
from kueuelib.app.installation import Installation, check_namespace, install, resource_of_object
from kueuelib.controllers.webhooks import by_service, with_conversion
from kueuelib.embedded.server import ApiServer
from kueuelib.errors import ConfigError, Invalid
from kueuelib.runtime.client import Client
from kueuelib.runtime.connection import connect
from kueuelib.runtime.queries import PatchType

URL = "https://127.0.0.1:9443"


async def conversions(client: Client) -> list[Obj]:
    found = [one["spec"]["conversion"] for one in (await client.list(kinds.CRDS)).items]
    return [one["webhook"]["clientConfig"] for one in found if one["strategy"] == "Webhook"]


async def test_the_way_to_the_conversion_webhook_may_be_somebody_elses(tmp_path: Path) -> None:
    async with ApiServer() as server:
        (tmp_path / "config").write_bytes(orjson.dumps(server.kubeconfig()))
        async with await connect(tmp_path / "config") as client:
            for crd in all_crds():
                other = with_conversion(crd, by_service("kueue-system", "kueue-webhook-service"))
                await client.create(kinds.CRDS, other)
            assert {"service"} <= set().union(*await conversions(client))
            await install(client, Installation("kueue-system", URL), 60.0)
            after = await conversions(client)
            assert after
            assert all(config.keys() == {"url", "caBundle"} for config in after)
            await install(client, Installation("kueue-system"), 60.0)
            back = await conversions(client)
            assert all(config.keys() == {"service", "caBundle"} for config in back)


async def test_only_one_version_may_be_served(tmp_path: Path) -> None:
    ours = {crd["spec"]["names"]["kind"] for crd in all_crds()}
    async with ApiServer() as server:
        (tmp_path / "config").write_bytes(orjson.dumps(server.kubeconfig()))
        async with await connect(tmp_path / "config") as client:
            for versions in (("v1beta2",), ("v1beta1", "v1beta2")):
                await install(client, Installation("kueue-system", URL, versions=versions), 60.0)
                for version in ("v1beta1", "v1beta2"):
                    served = ours.intersection(await client.served_kinds(kinds.KUEUE, version))
                    assert served == (ours if version in versions else set())


async def test_webhooks_that_leave_a_manager_by_url_are_told(tmp_path: Path) -> None:
    async with ApiServer() as server:
        (tmp_path / "config").write_bytes(orjson.dumps(server.kubeconfig()))
        async with await connect(tmp_path / "config") as client:
            other = "https://127.0.0.1:9444"
            for url, warned in ((None, 0), (URL, 0), (other, 0), (None, 1), (None, 0)):
                lines = await install(client, Installation("kueue-system", url), 60.0)
                told = [line for line in lines if line.startswith("warning: ")]
                assert len(told) == warned
                for line in told:
                    assert f"led to {other}, and now lead to Service kueue-system/" in line
                    assert line.endswith(f"with --webhook-url {other}")


async def test_a_kind_that_others_convert_needs_no_webhook_afterwards(tmp_path: Path) -> None:
    async with ApiServer() as server:
        (tmp_path / "config").write_bytes(orjson.dumps(server.kubeconfig()))
        async with await connect(tmp_path / "config") as client:
            webhook = {
                "clientConfig": by_service("kueue-system", "kueue-webhook-service")("/convert"),
                "conversionReviewVersions": ["v1"],
            }
            other = {"strategy": "Webhook", "webhook": webhook}
            for crd in all_crds():
                spec = {**crd["spec"], "conversion": other}
                await client.create(kinds.CRDS, {**crd, "spec": spec})
            await install(client, Installation("kueue-system", URL), 60.0)
            for crd in all_crds():
                found = await client.get(kinds.CRDS, ObjectKey("", crd["metadata"]["name"]))
                strategy = crd["spec"]["conversion"]["strategy"]
                assert found["spec"]["conversion"]["strategy"] == strategy
                assert ("webhook" in found["spec"]["conversion"]) is (strategy == "Webhook")


async def test_the_way_to_webhooks_may_be_somebody_elses(tmp_path: Path) -> None:
    """As after `install --print | kubectl apply -f -`, which owns the Service that it wrote."""
    async with ApiServer() as server:
        (tmp_path / "config").write_bytes(orjson.dumps(server.kubeconfig()))
        async with await connect(tmp_path / "config") as client:
            for obj in Installation("kueue-system").webhooks():
                for hook in obj["webhooks"]:
                    hook["clientConfig"]["caBundle"] = "Q0E="
                await client.create(
                    resource_of_object(obj), obj, field_manager="kubectl-client-side-apply"
                )
            for installation, way in (
                (Installation("kueue-system", URL), "url"),
                (Installation("kueue-system"), "service"),
            ):
                await install(client, installation, 60.0)
                for kind in (kinds.MUTATING_WEBHOOKS, kinds.VALIDATING_WEBHOOKS):
                    (found,) = (await client.list(kind)).items
                    ways = [hook["clientConfig"].keys() for hook in found["webhooks"]]
                    assert ways
                    assert all(each == {way, "caBundle"} for each in ways)


async def test_a_role_of_ours_that_was_made_an_aggregated_one_gets_its_rules_back(
    tmp_path: Path,
) -> None:
    async with ApiServer() as server:
        (tmp_path / "config").write_bytes(orjson.dumps(server.kubeconfig()))
        async with await connect(tmp_path / "config") as client:
            await install(client, Installation("kueue-system", URL), 60.0)
            roles = Resource(
                "rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", namespaced=False
            )
            key = ObjectKey("", "kueue-manager-role")
            wanted = await client.get(roles, key)
            rule = {"clusterRoleSelectors": [{"matchLabels": {"theirs": "true"}}]}
            body = {"aggregationRule": rule, "rules": []}
            await client.patch(roles, key, body, PatchType.MERGE, field_manager="kubectl")
            said = await install(client, Installation("kueue-system", URL), 60.0)
            found = await client.get(roles, key)
    assert "clusterrole/kueue-manager-role configured" in said
    assert (found.get("aggregationRule"), found["rules"]) == (None, wanted["rules"])


async def test_pods_of_an_earlier_installation_are_named_with_the_command(tmp_path: Path) -> None:
    inside = Installation("kueue-system", deployed=Deployed())
    outside = Installation("kueue-system", URL)
    async with ApiServer() as server:
        (tmp_path / "config").write_bytes(orjson.dumps(server.kubeconfig()))
        async with await connect(tmp_path / "config") as client:
            told = lambda lines: [one for one in lines if "left as it is" in one]  # noqa: E731
            assert not told(await install(client, outside, 60.0))
            assert not told(await install(client, inside, 60.0))
            (line,) = told(await install(client, outside, 60.0))
            assert line == (
                "deployment/kueue-controller-manager left as it is: it keeps 2 pods although the "
                "webhooks lead to a manager elsewhere; one of them may lead, with another "
                "configuration; to remove it: kubectl -n kueue-system delete deployment "
                "kueue-controller-manager"
            )
            key = ObjectKey("kueue-system", "kueue-controller-manager")
            await client.patch(kinds.DEPLOYMENTS, key, {"spec": {"replicas": 0}}, PatchType.MERGE)
            assert not told(await install(client, outside, 60.0))


async def test_a_configuration_is_not_replaced_by_the_default_one(tmp_path: Path) -> None:
    own = Deployed(config="apiVersion: config.kueue.x-k8s.io/v1beta2\n", visibility_port=8082)
    key = ObjectKey("kueue-system", "kueue-manager-config")
    async with ApiServer() as server:
        (tmp_path / "config").write_bytes(orjson.dumps(server.kubeconfig()))
        async with await connect(tmp_path / "config") as client:
            for deployed in (Deployed(), Deployed(), own, own):
                await install(client, Installation("kueue-system", deployed=deployed), 60.0)
            before = await client.get(kinds.CONFIG_MAPS, key)
            with pytest.raises(ConfigError) as refused:
                await install(client, Installation("kueue-system", deployed=Deployed()), 60.0)
            problem = "holds a configuration, which the default one would replace"
            assert refused.value.problem == problem
            path = r"-o jsonpath='{.data.controller_manager_config\.yaml}' > manager.yaml"
            assert path in refused.value.fix
            assert await client.get(kinds.CONFIG_MAPS, key) == before
            lines = await install(client, Installation("kueue-system", URL), 60.0)
            (told, *_) = [line for line in lines if line.startswith("warning: apiservice/")]
            assert "kubectl delete apiservice v1beta" in told
            await client.delete(kinds.CONFIG_MAPS, key)
            await install(client, Installation("kueue-system", deployed=Deployed()), 60.0)


def test_a_manager_elsewhere_serves_the_visibility_api_on_its_host() -> None:
    found = Installation("kueue-system", "https://192.0.2.7:9443", visibility_port=8082)
    service, *_ = found.visibility()
    assert service["spec"] == {"type": "ExternalName", "externalName": "192.0.2.7"}
    ports = {
        obj["spec"]["service"]["port"] for obj in found.visibility() if obj["kind"] == "APIService"
    }
    assert ports == {8082}
    assert Installation("kueue-system", URL).visibility() == []
    with pytest.raises(ConfigError, match="a Service cannot name an IPv6 address"):
        Installation("kueue-system", "https://[2001:db8::1]:9443", visibility_port=1).visibility()


@pytest.mark.parametrize("name", ["Bad_Name", "", "a" * 64, "a.b"])
def test_a_name_that_no_namespace_can_have_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="not a valid namespace name; use lower-case letters"):
        check_namespace(name)


async def test_nothing_is_written_while_the_namespace_or_a_kind_is_being_deleted(
    tmp_path: Path,
) -> None:
    name = "workloads.kueue.x-k8s.io"
    async with ApiServer() as server:
        (tmp_path / "config").write_bytes(orjson.dumps(server.kubeconfig()))
        async with await connect(tmp_path / "config") as client:
            space = {"name": "kueue-system", "finalizers": ["example.com/slow"]}
            await client.create(kinds.NAMESPACES, {"metadata": space})
            await client.delete(kinds.NAMESPACES, ObjectKey("", "kueue-system"))
            with pytest.raises(ConfigError, match="namespace kueue-system: is being deleted"):
                await install(client, Installation("kueue-system", URL), 60.0)
            assert not (await client.list(kinds.CRDS)).items
            (crd,) = (one for one in all_crds() if one["metadata"]["name"] == name)
            crd["metadata"]["finalizers"] = ["example.com/slow"]
            await client.create(kinds.CRDS, crd)
            await client.delete(kinds.CRDS, ObjectKey("", name))
            with pytest.raises(ConfigError, match=f"{name}: this CRD is being deleted"):
                await install(client, Installation("kueue-system", URL), 60.0)
            assert [one["metadata"]["name"] for one in (await client.list(kinds.CRDS)).items] == [
                name
            ]


async def test_each_line_is_told_as_soon_as_it_is_true(tmp_path: Path) -> None:
    group = "rbac.authorization.k8s.io"
    bindings = Resource(group, "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False)
    other = {"apiGroup": group, "kind": "ClusterRole", "name": "other"}
    async with ApiServer() as server:
        (tmp_path / "config").write_bytes(orjson.dumps(server.kubeconfig()))
        async with await connect(tmp_path / "config") as client:
            name = {"name": "kueue-manager-rolebinding"}
            await client.create(bindings, {"metadata": name, "roleRef": other})
            told: list[str] = []
            with pytest.raises(Invalid):
                await install(client, Installation("kueue-system"), 60.0, told.append)
            assert "namespace/kueue-system created" in told
            await client.delete(bindings, ObjectKey("", name["name"]))
            told.clear()
            assert await install(client, Installation("kueue-system"), 60.0, told.append) == told
