"""The constants of `kueuelib.runtime.kinds` say what servers say."""

from __future__ import annotations

from kueuelib.runtime import Resource, kinds

CUSTOM = ("kueue.x-k8s.io", "leaderworkerset.x-k8s.io", "monitoring.coreos.com")
NOT_EMBEDDED = {"autoscaling", "policy", "storage.k8s.io"}
"""Groups of which the embedded server has no kind."""
NOR = {"IngressClass", "NetworkPolicy"}


async def test_the_constants_have_the_plurals_and_scopes_of_the_server(api):
    embedded = type(api.server).__name__ == "ApiServer"
    for kind in vars(kinds).values():
        if not isinstance(kind, Resource) or kind.group in CUSTOM:
            continue
        found = await api.get(f"/apis/{kind.api_version}" if kind.group else "/api/v1")
        if embedded and (kind.group in NOT_EMBEDDED or kind.kind in NOR):
            assert kind.kind not in found.text
            continue
        served = {each["name"]: each for each in found.body["resources"]}[kind.plural]
        assert (served["kind"], served["namespaced"]) == (kind.kind, kind.namespaced)
