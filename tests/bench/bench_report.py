"""The live page with 2,000 Workloads in Chromium: how late a change appears, how soon keys act."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from figures import milliseconds, show

from kueuelib.testing.background import BackgroundServer

sys.path.insert(0, str(Path(__file__).parents[1] / "e2e"))
from browser import ABSENT, CHROMIUM, Page, browser
from rest import KUEUE, Rest
from test_pending import Users
from test_report import STATUS, row, served, shown, workload

WAITING = 2000
CHANGES = 5
SECONDS = 20
"""Of a stream of changes, one each second."""
PROBE = 0.02
"""Seconds between small requests that show how soon the loop of the server answers."""
PROBES = """
import http.client, json, sys, time
url, seconds, pause = sys.argv[1], float(sys.argv[2]), float(sys.argv[3])
connection, found = http.client.HTTPConnection(url.split("/")[2]), []
end = time.perf_counter() + seconds
while time.perf_counter() < end:
    since = time.perf_counter()
    connection.request("POST", "/")
    answer = connection.getresponse()
    answer.read()
    assert answer.status == 405
    found.append(time.perf_counter() - since)
    time.sleep(pause)
print(json.dumps(found))
"""
"""In a process of its own. The server refuses these requests at once: only its loop can be late."""
WATCH = """
window.longest = 0;
new PerformanceObserver(list => {
  for (const entry of list.getEntries()) window.longest = Math.max(window.longest, entry.duration);
}).observe({entryTypes: ['longtask']});
"""
LONGEST = "((found) => { window.longest = 0; return found / 1000; })(window.longest)"
KEY = """
new Promise(done => {
  const filter = document.getElementById('filter'), since = performance.now();
  new MutationObserver((_, watch) => {
    watch.disconnect();
    requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now() - since)));
  }).observe(document.getElementById('found'), {childList: true});
  filter.value = '%s';
  filter.dispatchEvent(new Event('input', {bubbles: true}));
})
"""
MARK = "for (const row of document.querySelectorAll('tr[data-find]')) row.marked = true;"
MARKED = "[...document.querySelectorAll('tr[data-find]')].filter(row => row.marked).length"
SIZE = "document.documentElement.outerHTML.length"


async def _appearances(page: Page, rest: Rest) -> list[float]:
    """Seconds from the answer of the server to a row on the page."""
    delays = []
    for number in range(CHANGES):
        rest.create(f"{KUEUE}/namespaces/ns/workloads", workload(f"new-{number}"))
        since = time.perf_counter()
        await page.until(shown(f"new-{number}"))
        delays.append(time.perf_counter() - since)
    return delays


async def _stream(page: Page, rest: Rest, url: str) -> list[float]:
    """One new Workload a second, last and first in turn; how long small requests took meanwhile."""
    command = [sys.executable, "-c", PROBES, url, str(SECONDS), str(PROBE)]
    probing = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
    for number in range(SECONDS):
        due = time.perf_counter() + 1
        one = workload(f"stream-{number}", 3)
        one["spec"]["priority"] = number if number % 2 else 0
        await asyncio.to_thread(rest.create, f"{KUEUE}/namespaces/ns/workloads", one)
        await asyncio.sleep(due - time.perf_counter())
    await page.until(shown(f"stream-{SECONDS - 1}", f"stream-{SECONDS - 2}"))
    said, _ = await probing.communicate()
    delays: list[float] = json.loads(said)
    return delays


@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason=ABSENT)
async def test_a_live_page_with_two_thousand_workloads(tmp_path: Path) -> None:
    with BackgroundServer(authorization="rbac") as server:
        users = Users(server, tmp_path)
        with Rest(users.admin) as rest:
            for number in range(WAITING - 1):
                rest.create(f"{KUEUE}/namespaces/ns/workloads", workload(f"w-{number}", 3))
            with served(users.admin) as url:
                async with browser(tmp_path / "profile") as page:
                    opened = time.perf_counter()
                    await page.open(url)
                    await page.until(f"{STATUS} === 'Live.'")
                    opened = time.perf_counter() - opened
                    await page.until(shown("w", f"w-{WAITING - 2}"))
                    await page.ask(WATCH)
                    keys = [
                        await page.ask(KEY % text) / 1000 for text in ("w-1", "w-19", "w-199", "")
                    ]
                    of_keys = await page.ask(LONGEST)
                    await page.ask(MARK)
                    appearances = await _appearances(page, rest)
                    of_changes, kept = await page.ask(LONGEST), await page.ask(MARKED)
                    await page.ask(f"{row('w-1000')}.scrollIntoView()")
                    probes = await _stream(page, rest, url)
                    of_stream = await page.ask(LONGEST)
                    size = await page.ask(SIZE)
                    assert await page.ask(f"{row('w')} !== null")
    show(
        f"a live page with {WAITING} waiting Workloads",
        (
            ("until it is live", milliseconds([opened])),
            ("a change until it appears", milliseconds(appearances)),
            ("a key in the filter until its rows are shown", milliseconds(keys)),
            ("the longest task of the browser while typing", milliseconds([of_keys])),
            ("the longest task of the browser while rows come", milliseconds([of_changes])),
            (
                f"the longest task of the browser, a change a second for {SECONDS} s",
                milliseconds([of_stream]),
            ),
            ("a small request to the server meanwhile", milliseconds(probes)),
            ("rows that changes left alone", f"{kept} of {WAITING}"),
            ("HTML", f"{size / 1e6:.2f} MB"),
        ),
    )
