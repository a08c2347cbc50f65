"""Commands of a user whom priority and fairness admits to nothing but `/version`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web

from kueuelib.app.installation import Installation
from kueuelib.app.uninstallation import Removal
from kueuelib.cli import install
from kueuelib.cli.explain import command as explain
from kueuelib.errors import TooManyRequests

PLAN = Installation("kueue-system")
COMMANDS: dict[str, Callable[[Path], Awaitable[Any]]] = {
    "explain": lambda file: explain._ask(
        explain.ExplainOptions(
            reference="workload/w",
            file=None,
            kubeconfig=file,
            config=None,
            namespace="ns",
            output="text",
            server_timeout=5.0,
            thorough=False,
        ),
        None,
        None,
    ),
    "install": lambda file: install._install(file, PLAN, 5.0),
    "uninstall": lambda file: install._uninstall(file, Removal(PLAN, True, False), 5.0),
}


@pytest.mark.parametrize("name", COMMANDS)
async def test_a_command_ends_in_time_and_names_the_limit(serve, tmp_path, name) -> None:
    async def handler(request: web.Request) -> web.Response:
        if request.path == "/version":
            return web.json_response({})
        uids = {"FlowSchema": "flow-uid", "PriorityLevel": "level-uid"}
        headers = {f"X-Kubernetes-PF-{kind}-UID": uid for kind, uid in uids.items()}
        return web.Response(text="busy", status=429, headers={"Retry-After": "11", **headers})

    file, server = tmp_path / "kubeconfig", {"server": await serve(handler)}
    content = {
        "clusters": [{"name": "c", "cluster": server}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}],
        "users": [{"name": "c", "user": {"token": "t"}}],
        "current-context": "c",
    }
    file.write_text(yaml.safe_dump(content))
    async with asyncio.timeout(30):
        with pytest.raises((TooManyRequests, ExceptionGroup)) as found:
            await COMMANDS[name](file)
    assert "FlowSchema flow-uid" in str(getattr(found.value, "exceptions", [found.value])[0])
