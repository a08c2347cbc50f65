from __future__ import annotations

import io
import logging

import orjson
import pytest
import structlog

from kueuelib.runtime.logs import configure, get_logger, run_of


@pytest.fixture(autouse=True)
def restored():
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    structlog.reset_defaults()
    root.handlers[:] = handlers
    root.setLevel(level)


def test_json_lines_carry_component_and_context():
    stream = io.StringIO()
    log = get_logger("thing", resource="jobs")
    configure("json", "info", stream)
    log.debug("not shown")
    with structlog.contextvars.bound_contextvars(reconcile="abc"):
        log.info("done", count=2)
    log.error("failed", exc_info=RuntimeError("boom"))
    logging.getLogger("asyncio").warning("from %s", "elsewhere")
    lines = [orjson.loads(line) for line in stream.getvalue().splitlines()]
    assert lines[0]["component"] == "thing"
    assert (lines[0]["event"], lines[0]["count"], lines[0]["reconcile"]) == ("done", 2, "abc")
    assert lines[0]["resource"] == "jobs"
    assert "RuntimeError: boom" in lines[1]["exception"]
    assert (lines[2]["event"], lines[2]["component"]) == ("from elsewhere", "asyncio")
    assert lines[2]["level"] == "warning"


def test_console_lines_are_for_people():
    stream = io.StringIO()
    configure("console", "warning", stream)
    log = get_logger("thing")
    log.info("not shown")
    log.warning("look", why="because")
    text = stream.getvalue()
    assert "look" in text
    assert "why=because" in text
    assert "not shown" not in text


@pytest.mark.parametrize(("format", "level"), [("xml", "info"), ("json", "loud")])
def test_unknown_formats_and_levels_are_refused(format, level):
    with pytest.raises(ValueError, match="does not exist"):
        configure(format, level)


def test_lines_of_one_run_of_a_controller_carry_its_name_the_key_and_one_id():
    stream = io.StringIO()
    configure("json", "info", stream)
    log = get_logger("thing")
    for _ in range(2):
        with run_of("jobs", "ns/name"):
            log.info("one", key="of its own")
            log.info("two")
    log.info("outside")
    *inside, outside = [orjson.loads(line) for line in stream.getvalue().splitlines()]
    assert [line["key"] for line in inside] == ["of its own", "ns/name"] * 2
    assert {line["controller"] for line in inside} == {"jobs"}
    first, same, second, _ = (line["reconcile"] for line in inside)
    assert first == same != second
    assert not {"controller", "key", "reconcile"} & outside.keys()
