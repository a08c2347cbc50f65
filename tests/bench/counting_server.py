"""`kueuelib apiserver --simulate` that counts calls: `counting_server.py KUBECONFIG COUNTS`.

After every call of the manager it knows how often the manager called what; on SIGUSR1 it writes
that to the file COUNTS, as JSON: `{"PATCH workloads/status": 12, ...}`. The simulated cluster works
inside the server and makes no calls, so its writes are not counted.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections import Counter
from pathlib import Path

import yaml
from aiohttp import web

from kueuelib.embedded import server
from kueuelib.embedded.http.face import Face
from kueuelib.embedded.http.routes import parse

MANAGER = "kueuelib/"
COUNTS: Counter[str] = Counter()


class CountingFace(Face):
    """Counts what the manager asks for."""

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.headers.get("User-Agent", "").startswith(MANAGER):
            route = parse(request.path)
            if route is not None and route.plural:
                what = "/".join(filter(None, (route.plural, route.subresource)))
                COUNTS[f"{request.method} {what}"] += 1
        return await super().handle(request)


async def _serve(kubeconfig: Path, counts: Path) -> None:
    server.Face = CountingFace  # type: ignore[misc]

    def write() -> None:
        draft = counts.with_suffix(".draft")
        draft.write_text(json.dumps(COUNTS))
        draft.replace(counts)

    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, write)
    async with server.ApiServer(simulate=True) as running:
        draft = kubeconfig.with_suffix(".draft")
        draft.write_text(yaml.safe_dump(running.kubeconfig()))
        draft.replace(kubeconfig)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_serve(Path(sys.argv[1]), Path(sys.argv[2])))
