"""Where a real server is at hand, the whole suite asks it too."""

from __future__ import annotations

import pytest
from real_server import assets


@pytest.mark.skipif(
    assets() is None, reason="$KUBEBUILDER_ASSETS names no folder with etcd and kube-apiserver"
)
async def test_a_real_server_takes_part(real_server, open_api):
    async with open_api(real_server) as api:
        found = (await api.get("/version")).body
    assert "kueuelib" not in found["gitVersion"]
