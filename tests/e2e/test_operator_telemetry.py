"""Log lines and metrics of an operator's author, made as in every other program."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import httpx

from kueuelib.api import kinds
from kueuelib.runtime import Client
from kueuelib.testing import BackgroundServer, eventually, free_port

PROGRAM = '''
import logging

from prometheus_client import Counter

from kueuelib.runtime import Context, Operator, kinds

app = Operator("counter")
SEEN = Counter("maps_seen", "ConfigMaps that were looked at")


@app.reconciles(kinds.CONFIG_MAPS)
async def count(config_map, context: Context) -> None:
    """Counts ConfigMaps."""
    SEEN.inc()
    logging.info("seen %s", config_map["metadata"]["name"])
'''


async def test_an_author_logs_and_counts_as_in_every_other_program(
    api_server: BackgroundServer, kube_client: Client, tmp_path: Path
) -> None:
    (tmp_path / "counter.py").write_text(PROGRAM)
    metrics, log = f"127.0.0.1:{free_port()}", tmp_path / "log"
    await kube_client.create(kinds.CONFIG_MAPS, kinds.CONFIG_MAPS.new("one", "default"))
    config = str(api_server.write_kubeconfig(tmp_path / "config"))
    options = ["--kubeconfig", config, "--no-leader-elect", "--metrics-address", metrics]
    with log.open("w") as stream:
        process = subprocess.Popen(
            [*(sys.executable, "-m", "kueuelib", "run", "counter:app"), *options],
            cwd=tmp_path,
            stderr=stream,
        )
    try:
        line = await eventually(
            lambda: next((each for each in log.read_text().splitlines() if "seen one" in each), ""),
            within=60,
        )
        assert "key=" in line
        assert "controller=counter-" in line
        async with httpx.AsyncClient() as http:
            text = (await http.get(f"http://{metrics}/metrics")).text
        assert "\nmaps_seen_total " in text
        assert "controller_runtime_reconcile_total" in text
    finally:
        process.kill()
        process.wait()
