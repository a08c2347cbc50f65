"""`kueuelib apiserver` that counts calls: `counting_server.py KUBECONFIG COUNTS [OPTIONS]`.

Its options are `--simulate` and `--racks RACKSxNODES`. It counts per program, by the first part of
the `User-Agent`; on SIGUSR1 it writes that to the file COUNTS, as JSON:
`{"kueuelib": {"apply workloads/status": 12, ...}, ...}`. What the server asks webhooks stands under
`webhooks`: `{"review pods": 3, ...}`. The simulated cluster works inside the server and makes no
calls, so its writes are not counted.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from aiohttp import web

from kueuelib.api.meta import Obj
from kueuelib.embedded import server
from kueuelib.embedded.admission.hook_client import HookClient
from kueuelib.embedded.cluster.nodes import nodes_in_racks
from kueuelib.embedded.http.request_handler import RequestHandler
from kueuelib.embedded.http.requests import Route, parse

VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
COUNTS: defaultdict[str, Counter[str]] = defaultdict(Counter)


class CountingFace(RequestHandler):
    """Counts what clients ask for."""

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        route = parse(request.path)
        if route is not None and route.plural:
            what = "/".join(filter(None, (route.plural, route.subresource)))
            agent = request.headers.get("User-Agent", "").partition("/")[0]
            COUNTS[agent][f"{verb_of(request, route)} {what}"] += 1
        return await super().handle(request)


class CountingHooks(HookClient):
    """Counts what webhooks are asked; conversions do not count."""

    async def call(self, client: Mapping[str, Any], body: Obj, *, seconds: float) -> Obj:
        review = body["request"]
        if "resource" in review:
            parts = (review["resource"]["resource"], review.get("subResource"))
            COUNTS["webhooks"][f"review {'/'.join(filter(None, parts))}"] += 1
        return await super().call(client, body, seconds=seconds)


def verb_of(request: web.BaseRequest, route: Route) -> str:
    """The Kubernetes verb of a request."""
    if request.method == "PATCH" and "apply-patch" in request.headers.get("Content-Type", ""):
        return "apply"
    if request.method != "GET":
        return VERBS.get(request.method, request.method.lower())
    if request.query.get("watch") in ("true", "1"):
        return "watch"
    return "get" if route.name else "list"


async def _serve(kubeconfig: Path, counts: Path, simulate: bool, racks: str) -> None:
    server.RequestHandler = CountingFace  # type: ignore[misc]
    server.HookClient = CountingHooks  # type: ignore[misc]
    nodes = nodes_in_racks(racks) if racks else []

    def write() -> None:
        draft = counts.with_suffix(".draft")
        draft.write_text(json.dumps(COUNTS))
        draft.replace(counts)

    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, write)
    async with server.ApiServer(simulate=simulate, nodes=nodes) as running:
        draft = kubeconfig.with_suffix(".draft")
        draft.write_text(yaml.safe_dump(running.kubeconfig()))
        draft.replace(kubeconfig)
        await asyncio.Event().wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("kubeconfig", type=Path)
    parser.add_argument("counts", type=Path)
    parser.add_argument("--simulate", action="store_true")
    parser.add_argument("--racks", default="")
    asyncio.run(_serve(**vars(parser.parse_args())))
