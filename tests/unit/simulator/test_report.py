"""The report: it is well-formed, needs nothing else, and shows the figures of the result."""

from __future__ import annotations

import csv
import re
import shutil
import subprocess
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import orjson
import pytest
from click.testing import CliRunner

from kueuelib.cli.syntax import app
from kueuelib.simulator.report import readable
from kueuelib.simulator.report.page import frame
from kueuelib.simulator.report.readable import (
    Scale,
    bent,
    log_ticks,
    moment,
    rounded_up,
    ticks,
    time_ticks,
)

EXAMPLE = Path(__file__).parents[3] / "examples/simulate"
HOSTILE = '<script src="https://example.com/x.js">&amp;'
CHROMIUM = shutil.which("chromium")


def simulate(output: Path, trace: Path, *options: str) -> None:
    cluster = ("--cluster", str(EXAMPLE / "cluster.yaml"), "--output", str(output))
    done = CliRunner().invoke(app, ["simulate", str(trace), *cluster, *options])
    assert done.exit_code == 0, done.output


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("results")
    options = ("--policy", str(EXAMPLE / "no-reclaim.yaml"), "--sample-seconds", "0.001")
    simulate(found, EXAMPLE / "jobs.csv", *options)
    return found


@pytest.fixture(scope="module")
def page(folder: Path) -> ET.Element:
    return parsed(folder / "report.html")


@pytest.fixture(scope="module")
def runs(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = orjson.loads((folder / "result.json").read_bytes())["runs"]
    return found


def parsed(path: Path) -> ET.Element:
    first, rest = path.read_text("utf-8").split("\n", 1)
    assert first == "<!DOCTYPE html>"
    return ET.fromstring(rest)


def table(page: ET.Element, caption: str) -> list[list[str]]:
    """The cells of the table with this caption, its head first."""
    (found,) = [one for one in page.iter("table") if one.findtext("caption") == caption]
    return [["".join(cell.itertext()) for cell in row] for row in found.iter("tr")]


def amounts(row: list[str]) -> list[float | None]:
    return [None if cell == "-" else float(cell.replace(",", "")) for cell in row]


def seconds(text: str, head: str) -> float:
    """A time in the unit that the head of its column, or of its table, ends with."""
    size = {"s": 1, "min": 60, "h": 3600, "d": 86400}
    return float(text.replace(",", "")) * size[head.rpartition(" ")[2]]


def test_it_refers_to_nothing_outside_of_itself(folder: Path, page: ET.Element) -> None:
    text = (folder / "report.html").read_text("utf-8")
    assert "http" not in text.replace('http-equiv="', "")
    assert "url(" not in text
    assert "@import" not in text
    assert not {"script", "link", "img", "iframe", "object"} & {one.tag for one in page.iter()}
    assert not [one for one in page.iter() if one.get("src") or one.get("onload")]
    (policy,) = [one for one in page.iter("meta") if one.get("http-equiv")]
    assert policy.get("content") == "default-src 'none'; style-src 'unsafe-inline'"


def test_every_link_leads_to_a_part_of_the_page(page: ET.Element) -> None:
    names = [found for one in page.iter() if (found := one.get("id"))]
    assert len(names) == len(set(names))
    links = [one.get("href", "") for one in page.iter("a")]
    assert links
    assert {link[1:] for link in links} <= set(names)
    assert {link[0] for link in links} == {"#"}


def test_every_picture_says_what_it_shows_and_has_a_table(page: ET.Element) -> None:
    pictures = [one for one in page.iter("svg") if one.get("aria-hidden") != "true"]
    assert len(pictures) > 10
    for picture in pictures:
        title, text = picture.find("title"), picture.find("desc")
        assert title is not None
        assert text is not None
        assert title.text
        assert text.text
        assert picture.get("role") == "img"
        assert picture.get("aria-labelledby") == f"{title.get('id')} {text.get('id')}"
    for figure in page.iter("figure"):
        assert figure.find(".//table") is not None


def test_the_figures_are_those_of_the_result(page: ET.Element, runs: dict[str, Any]) -> None:
    head, *rows = table(page, "All runs")
    assert head == ["", "baseline", "no-reclaim"]
    shown = {name: [cell.split(" ")[0] for cell in cells] for name, *cells in rows}
    for at, run in enumerate(runs.values()):
        total = run["total"]
        expected = {
            "wait p90 s": total["wait_seconds"]["p90"],
            "wait mean s": total["wait_seconds"]["mean"],
            "bounded slowdown mean": total["bounded_slowdown"]["mean"],
            "preemptions": total["preemptions"],
            "work lost s": total["work_lost_seconds"],
            "makespan s": run["makespan_seconds"],
            "Jain's index": run["jain_index"],
            "jobs that did not end": run["simulation"]["unfinished"],
        }
        for name, value in expected.items():
            assert float(shown[name][at]) == pytest.approx(value, rel=1e-3), name
        assert run["decisions"].startswith(shown["decisions"][at])


def test_use_over_time_is_that_of_the_table_of_queues(
    folder: Path, page: ET.Element, runs: dict[str, Any]
) -> None:
    head, *rows = table(page, "Use of default/cpu: means")
    for run, figures in runs.items():
        with (folder / run / "queues.csv").open() as file:
            found = [
                (
                    float(row["time"]),
                    row["cluster_queue"],
                    float(row["used"]),
                    float(row["waiting"]),
                )
                for row in csv.DictReader(file)
            ]
        end = figures["makespan_seconds"]
        begin = 0.0
        for row in rows:
            until = min(seconds(row[0], head[0]), end)
            used = sum(mean(found, name, 2, begin, until) for name in ("team-a", "team-b"))
            assert amounts(row[1:])[head.index(f"{run}, used") - 1] == pytest.approx(used, abs=0.01)
            begin = until
        lines = table(page, "Jobs that wait for quota: means")
        begin = 0.0
        for row in lines[1:]:
            until = min(seconds(row[0], lines[0][0]), end)
            waiting = sum(mean(found, name, 3, begin, until) for name in ("team-a", "team-b"))
            assert amounts(row[1:])[lines[0].index(run) - 1] == pytest.approx(waiting, abs=0.01)
            begin = until


def mean(rows: list[tuple[Any, ...]], queue: str, column: int, begin: float, until: float) -> float:
    """Of what `queues.csv` says between two times."""
    mine = [(0.0, 0.0), *((row[0], row[column]) for row in rows if row[1] == queue)]
    mine.append((until, 0.0))
    area = sum(
        value * max(0.0, min(after, until) - max(at, begin))
        for (at, value), (after, _) in pairwise(mine)
    )
    return area / (until - begin)


def test_the_parts_of_the_waits_are_those_of_the_jobs(folder: Path, page: ET.Element) -> None:
    title = "Time within which a given part of the started jobs did start, s"
    head, *rows = table(page, title)
    for run in ("baseline", "no-reclaim"):
        with (folder / run / "jobs.csv").open() as file:
            waits = sorted(
                float(row["waiting_time"]) for row in csv.DictReader(file) if row["waiting_time"]
            )
        for part, *cells in rows:
            at = -(-len(waits) * int(part.rstrip("%")) // 100) - 1
            assert seconds(cells[head.index(run) - 1], title) == waits[at]


def test_who_preempted_whom_is_what_was_computed_by_hand(page: ET.Element) -> None:
    found = table(page, "Preempted jobs by ClusterQueue, baseline")
    # b1 and b3 preempt a2 and a3, a4 preempts a3, a5 preempts b4
    assert [row[1:] for row in found] == [["team-a", "team-b"], ["1", "1"], ["2", ""]]


def test_the_longest_waits_are_those_computed_by_hand(page: ET.Element) -> None:
    head, *rows = table(page, "The longest waits")
    assert head[3:7] == ["arrived s", "waited s", "started s", "ended s"]
    assert [[row[1], row[4]] for row in rows if row[0] == "baseline"] == [
        ["default/a3", "90"],
        ["default/b2", "30"],
        ["default/b3", "20"],
        ["default/a6", "15"],
    ]


def test_every_column_of_times_has_one_unit(page: ET.Element) -> None:
    """It stands in the head; no cell has one of its own."""
    tables = list(page.iter("table"))
    assert len(tables) > 15
    cells = ["".join(cell.itertext()) for one in tables for cell in one.iter("td")]
    assert not [cell for cell in cells if re.fullmatch(r"[\d.,]+(s|m|min|h|d|y)", cell)]
    heads = ["".join(cell.itertext()) for one in tables for cell in one.iter("th")]
    timed = {one for one in heads if re.match("wait |until|work lost|makespan|arrived|waited", one)}
    assert {one.rpartition(" ")[2] for one in timed} == {"s"}
    assert len(timed) >= 10


@pytest.mark.parametrize(
    ("values", "unit", "text"),
    [
        ([], "s", "0"),
        ([0, None, 0], "s", "0"),
        ([12, 30, 90], "s", "3,430"),
        ([12, 90, 3430], "min", "57.17"),
        ([0, 0, 0, 133, 4000, 6480, 164_000], "h", "0.9528"),
        ([200_000], "d", "0.0397"),
    ],
)
def test_half_of_the_times_have_one_of_their_unit(
    values: list[float | None], unit: str, text: str
) -> None:
    found = readable.time_unit(values)
    assert found.name == unit
    assert found(3430 if any(values) else 0) == text
    assert found(None) == "-"


def test_the_page_begins_with_the_verdict(folder: Path, page: ET.Element) -> None:
    result = orjson.loads((folder / "result.json").read_bytes())
    (sentence,) = [one.text for one in page.iter("p") if one.get("class") == "verdict"]
    assert result["verdicts"] == [sentence]
    head, *rows = table(page, "Jobs by size")
    assert head[:3] == ["size", "run", "jobs"]
    assert [row[0] for row in rows] == ["small", "small", "medium", "medium", "large", "large"]


def test_names_of_files_are_text(tmp_path: Path) -> None:
    name = HOSTILE.replace("/", "-")
    trace = tmp_path / f"{name}.csv"
    shutil.copy(EXAMPLE / "jobs.csv", trace)
    simulate(tmp_path / "out", trace)
    page = parsed(tmp_path / "out/report.html")
    assert f"Trace: {trace}" in [one.text for one in page.iter("p")]
    assert not list(page.iter("script"))


def test_a_simulation_in_which_no_time_passes_has_a_report(tmp_path: Path) -> None:
    trace = tmp_path / "a.csv"
    trace.write_text("name,arrival,run_seconds,cpu,queue\na,5,0,1,team-a\n")
    simulate(tmp_path / "out", trace)
    assert parsed(tmp_path / "out/report.html").findtext(".//h1") == "Simulation of 1 job"


def test_use_far_below_nominal_quota_can_be_seen(tmp_path: Path) -> None:
    trace = tmp_path / "a.csv"
    trace.write_text("name,arrival,run_seconds,cpu,queue\na,5,90,100m,team-a\n")
    simulate(tmp_path / "out", trace)
    figure = next(parsed(tmp_path / "out/report.html").iter("figure"))
    (text,) = [one.text for one in figure.iter("p")]
    assert text == (
        "On average 0.1 of 8 are used, 0 of them borrowed."
        " Nominal quota is too far above the use to be drawn."
    )
    labels = {one.text for one in figure.iter("text")}
    assert "0.1" in labels
    assert "8" not in labels


@pytest.mark.parametrize(
    ("high", "found"),
    [(8, [0, 2, 4, 6, 8]), (415, [0, 100, 200, 300, 400]), (0.7, [0, 0.2, 0.4, 0.6]), (0, [0])],
)
def test_ticks_are_round(high: float, found: list[float]) -> None:
    assert ticks(high) == pytest.approx(found)


@pytest.mark.parametrize(("high", "end"), [(8, 8), (415, 500), (0.7, 0.8), (0, 1), (36, 40)])
def test_an_axis_ends_with_a_round_value(high: float, end: float) -> None:
    assert rounded_up(high) == pytest.approx(end)
    assert rounded_up(high * 1024, 1024) == pytest.approx(end * 1024)


@pytest.mark.parametrize(
    ("span", "texts"),
    [
        (415, ["0", "2m", "4m", "6m"]),
        (3, ["0", "1s", "2s", "3s"]),
        (100_000, ["0", "12h", "1d"]),
        (604_800, ["0", "2d", "4d", "6d"]),
        (1e11, ["0", "1057y", "2114y"]),
    ],
)
def test_times_read_well(span: float, texts: list[str]) -> None:
    found = [moment(one) for one in time_ticks(span, 3)]
    assert found == texts
    assert all(one <= span for one in time_ticks(span, 3))


@pytest.mark.parametrize(
    ("value", "resource", "text"),
    [
        (0.5301, "cpu", "0.5301"),
        (17_960.0, "cpu", "17,960"),
        (6_212_000.0, "kueuelib.dev/gpu-milli", "6,212,000"),
        (2.0**20, "memory", "1Mi"),
        (1000 * 2.0**30, "memory", "1,000Gi"),
        (1500 * 2.0**40, "memory", "1,500Ti"),
        (3 * 2.0**30, "hugepages-2Mi", "3Gi"),
    ],
)
def test_amounts_read_well(value: float, resource: str, text: str) -> None:
    assert readable.amount(value, resource) == text


def test_labels_of_an_axis_have_room() -> None:
    across, up = frame(960, 220, 10, 8e6, partial(readable.amount, resource="x"), "x")
    longest = max(len(label) for _, label in up.ticks)
    assert longest == len("8,000,000")
    assert across.scale.start > 7 * longest


def test_small_waits_have_room() -> None:
    across = Scale(0, 3600, 0, 100, bent)
    places = [across(one) for one in log_ticks(3600)]
    assert places[0] == 0
    assert places[-1] == pytest.approx(100)
    assert all(after - before > 8 for before, after in pairwise(places))
    assert across(1e9) == 100


@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium on the PATH")
def test_a_browser_takes_the_page_as_it_is(folder: Path, page: ET.Element, tmp_path: Path) -> None:
    """It repairs nothing, loads nothing, and shows dark and light."""
    dom, said = browse(tmp_path, folder, "--dump-dom")
    for name in ("svg", "path", "rect", "text", "table", "tr", "td", "details", "section"):
        assert len(re.findall(rf"<{name}[ >]", dom)) == len(list(page.iter(name))), name
    assert "Refused" not in said
    assert "violates" not in said
    looks = []
    for scheme in (0, 1):
        picture = tmp_path / f"{scheme}.png"
        colours = f"--blink-settings=preferredColorScheme={scheme}"
        browse(tmp_path, folder, f"--screenshot={picture}", "--window-size=1000,700", colours)
        looks.append(picture.read_bytes())
    assert looks[0] != looks[1]
    paper = tmp_path / "report.pdf"
    browse(tmp_path, folder, f"--print-to-pdf={paper}")
    assert paper.read_bytes().startswith(b"%PDF")


def browse(profile: Path, folder: Path, *options: str) -> tuple[str, str]:
    assert CHROMIUM is not None
    flags = "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-sync"
    flags += " --disable-background-networking --disable-component-update --enable-logging=stderr"
    command = [CHROMIUM, *flags.split(), f"--user-data-dir={profile / 'profile'}"]
    done = subprocess.run(
        [*command, *options, (folder / "report.html").as_uri()],
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    return done.stdout, done.stderr
