"""The CustomResourceDefinitions of the queueing kinds: a server takes them with all their rules.

Kubernetes estimates what a rule could cost at most and refuses what could cost too much.
"""

from __future__ import annotations

import pytest

from kueuelib.api.crd import KINDS, crd
from kueuelib.app.deployment import Deployed
from kueuelib.app.installation import Installation, resource_of_object

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


@pytest.mark.parametrize("kind", KINDS)
async def test_a_definition_is_accepted_and_served(api, kind):
    definition = crd(kind)
    definition["spec"]["conversion"] = {"strategy": "None"}
    made = await api.post(CRDS, definition)
    assert made.status == 201, made.body
    plural = definition["spec"]["names"]["plural"]
    for version in ("v1beta1", "v1beta2"):
        assert await api.becomes(200, f"/apis/kueue.x-k8s.io/{version}/{plural}")
    found = (await api.get(f"{CRDS}/{plural}.kueue.x-k8s.io")).body
    states = {one["type"]: one["status"] for one in found["status"]["conditions"]}
    assert states["Established"] == "True"
    assert states.get("NonStructuralSchema", "False") == "False"


async def test_everything_that_is_installed_is_accepted(api):
    """Strictly: a field that the server does not know is an error. Nothing runs here."""
    accepted = set()
    for obj in Installation("kueue-system", deployed=Deployed()).manifests():
        kind = resource_of_object(obj)
        path = kind.path(obj["metadata"].get("namespace", ""))
        if (await api.get(path)).status == 404:
            continue  # the embedded server has fewer kinds
        made = await api.post(path, obj, params={"fieldValidation": "Strict"})
        assert made.status == 201, made.body
        accepted.add(kind.kind)
    assert {"Deployment", "CustomResourceDefinition", "ClusterRole"} <= accepted
