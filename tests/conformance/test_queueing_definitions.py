"""The CustomResourceDefinitions of the queueing kinds: a server takes them with all their rules.

Kubernetes estimates what a rule could cost at most and refuses what could cost too much.
"""

from __future__ import annotations

import pytest

from kueuelib.api.crd import KINDS, crd

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
