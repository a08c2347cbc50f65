from __future__ import annotations

import io
import logging
import re

import orjson
import pytest
import structlog

from kueuelib.api.meta import ObjectKey
from kueuelib.runtime.logs import (
    OncePerMinute,
    configure,
    configure_unless_done,
    get_logger,
    run_of,
)


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


def test_the_key_of_an_object_is_logged_for_people():
    stream = io.StringIO()
    configure("console", "info", stream)
    with run_of("jobs", ObjectKey("ns", "name")):
        get_logger("thing").info("one")
    assert " key=ns/name " in stream.getvalue()


def forget_configuration():
    """Pytest has handlers of its own, which it adds after the fixtures."""
    structlog.reset_defaults()
    logging.getLogger().handlers[:] = []


def test_a_program_without_configuration_hears_warnings_only_and_on_stderr(capsys):
    forget_configuration()
    log = get_logger("thing")
    log.info("not shown")
    log.warning("look", why="because")
    out, err = capsys.readouterr()
    assert (out, err) == ("", "look why=because\n")
    assert not structlog.is_configured()


def test_lines_go_to_the_handlers_of_a_program_that_configures_logging():
    forget_configuration()
    log = get_logger("thing", resource="jobs")
    records, stream = [], io.StringIO()
    logging.basicConfig(stream=stream, level="INFO", format="%(levelname)s:%(name)s:%(message)s")
    logging.getLogger().handlers[0].addFilter(lambda record: records.append(record) or True)
    configure_unless_done()
    log.debug("not shown")
    with run_of("jobs", "ns/name"), structlog.contextvars.bound_contextvars(tenant="red"):
        log.info("done 100 %s", count=2)
    log.error("failed", exc_info=ValueError("boom"))
    done, failed, *_ = stream.getvalue().splitlines()
    assert done.startswith("INFO:kueuelib.thing:done 100 %s ")
    words = set(done.split())
    assert {"resource=jobs", "count=2", "controller=jobs", "key=ns/name", "tenant=red"} <= words
    assert failed == "ERROR:kueuelib.thing:failed resource=jobs"
    assert "ValueError: boom" in stream.getvalue()
    assert {record.filename for record in records} == {"test_logs.py"}
    assert not structlog.is_configured()


def test_a_level_of_one_of_our_loggers_counts():
    forget_configuration()
    stream = io.StringIO()
    logging.basicConfig(stream=stream, level="INFO")
    logging.getLogger("kueuelib.thing").setLevel("ERROR")
    try:
        get_logger("thing").info("not shown")
        get_logger("other").info("shown")
    finally:
        logging.getLogger("kueuelib.thing").setLevel(logging.NOTSET)
    assert stream.getvalue() == "INFO:kueuelib.other:shown\n"


def test_lines_go_through_the_processors_of_a_program_that_configures_structlog():
    forget_configuration()
    log, seen = get_logger("thing"), []

    def keep(_, level, event):
        seen.append((level, dict(event)))
        raise structlog.DropEvent

    structlog.configure(processors=[structlog.contextvars.merge_contextvars, keep])
    configure_unless_done()
    with run_of("jobs", "ns/name"):
        log.info("done", count=2)
        structlog.get_logger().warning("mine")
    (first, done), (second, mine) = seen
    assert (first, second) == ("info", "warning")
    assert str(done.pop("reconcile")) == str(mine.pop("reconcile"))
    known = {"controller": "jobs", "key": "ns/name"}
    assert done == known | {"component": "thing", "event": "done", "count": 2}
    assert mine == known | {"event": "mine"}
    assert logging.getLogger().handlers == []


def test_a_program_without_a_wish_gets_lines_for_people(capsys):
    forget_configuration()
    configure_unless_done("warning")
    get_logger("thing").info("not shown")
    get_logger("thing").warning("look", why="because")
    out, err = capsys.readouterr()
    assert out == ""
    assert "why=because" in err
    assert "not shown" not in err


@pytest.mark.parametrize(("level", "heard"), [("debug", 3), ("info", 2), ("warning", 1)])
def test_the_lines_of_an_author_have_the_level_of_the_program(level, heard):
    forget_configuration()
    stream = io.StringIO()
    configure("json", level, stream)
    logging.debug("one")  # noqa: LOG015 - as authors write it
    logging.getLogger("greeter").info("two")
    with run_of("greetings", "ns/name"):
        logging.getLogger("greeter").warning("three")
    lines = stream.getvalue().splitlines()
    assert len(lines) == heard
    assert '"controller":"greetings"' in lines[-1]
    assert '"key":"ns/name"' in lines[-1]


def test_a_recurring_problem_is_one_line_for_the_handlers_of_a_program_unless_they_want_all(caplog):
    log, other = get_logger("thing"), get_logger("thing")
    for number in range(11):
        log.error("failed", error=f"no {number}", key=number)
        log.info("done", error="")
    other.error("failed", error="no 1")
    assert [each.getMessage() for each in caplog.records] == [
        "failed error=no 0 key=0",
        "failed error=no 1",
    ]
    assert {each.levelname for each in caplog.records} == {"ERROR"}
    caplog.clear()
    with caplog.at_level("DEBUG"):
        for number in range(3):
            log.error("failed", error=f"no {number}")
    assert len(caplog.records) == 3


def test_lines_that_were_left_out_are_counted_a_minute_later(caplog, monkeypatch):
    waiting = set()
    monkeypatch.setattr(OncePerMinute, "_wait", lambda sparing: waiting.add(sparing.finish))
    log = get_logger("thing")
    for _ in range(4):
        log.warning("failed", error="no")
    (finish,) = waiting
    finish()
    first, later = (each.getMessage() for each in caplog.records)
    assert first == "failed error=no"
    assert re.fullmatch("failed error=no last=[^ ]+Z left_out=2 first=[^ ]+Z", later)
    assert caplog.records[-1].levelname == "WARNING"
    assert caplog.records[-1].name == "kueuelib.thing"
