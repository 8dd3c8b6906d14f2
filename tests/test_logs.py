"""What a line of the log says, and what it never does."""

from __future__ import annotations

import io
import json
import logging
import os
import sys
from collections.abc import Iterator

import pytest

from checkrein import Secrets, logs
from checkrein.errors import WrongInput

KEY = "wren-52-otter-lantern"
LOGGER = logging.getLogger("checkrein.sample")


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> Iterator[io.StringIO]:
    """What reaches standard error, with logging configured for the time of a test."""
    for name in (logs.LEVEL_VARIABLE, logs.FORMAT_VARIABLE):
        monkeypatch.delenv(name, raising=False)
    stream = io.StringIO()
    monkeypatch.setattr(sys, "__stderr__", stream)
    monkeypatch.setattr(logs, "_redactor", logs._Redactor())
    with logs.configured():
        yield stream


def objects(written: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in written.getvalue().splitlines()]


def test_by_default_warnings_are_written_as_text_and_nothing_less(written: io.StringIO) -> None:
    LOGGER.info("claimed")
    LOGGER.warning("lost %s", "the lease", extra={"run": "r-1", "call": "c4", "epoch": 3})

    (line,) = written.getvalue().splitlines()
    assert line.endswith(f" WARNING [{os.getpid()}] checkrein.sample run=r-1 call=c4 epoch=3: lost the lease")


def test_json_is_one_object_a_line_whatever_is_in_it(written: io.StringIO) -> None:
    logs.configure(level="info", format="json")

    LOGGER.info("two\nlines\x7f \x1b[2J", extra={"run": "r-1", "epoch": 2})
    try:
        raise OSError("the disk\nis full")
    except OSError:
        LOGGER.exception("not written")

    first, second = objects(written)
    assert (first["level"], first["run"], first["epoch"]) == ("info", "r-1", 2)
    assert first["message"] == "two\nlines\x7f \x1b[2J"
    assert "call" not in first
    assert first["process"] == os.getpid()
    assert (second["level"], "OSError: the disk\nis full" in str(second["traceback"])) == ("error", True)
    assert written.getvalue().isascii()
    assert "\x1b" not in written.getvalue()
    assert "\x7f" not in written.getvalue()


def test_text_in_a_line_cannot_act_on_a_terminal_nor_pass_for_another_line(written: io.StringIO) -> None:
    LOGGER.warning("\x1b[2J\nERROR forged", extra={"run": "r-1\nr-2"})
    try:
        raise ValueError("\x1b[31m")
    except ValueError:
        LOGGER.exception("failed")

    first, second, *traceback = written.getvalue().splitlines()
    assert first.endswith("run=r-1\\nr-2: \\x1b[2J\\nERROR forged")
    assert second.endswith(": failed")
    assert traceback
    assert all(line.startswith("    ") for line in traceback)
    assert "\x1b" not in written.getvalue()


@pytest.mark.parametrize("form", logs.FORMATS)
def test_no_secret_is_written(monkeypatch: pytest.MonkeyPatch, written: io.StringIO, form: str) -> None:
    """Neither one of the environment nor one that a runtime was given; not in a traceback either."""
    monkeypatch.setenv("SAMPLE_API_KEY", KEY)
    logs.configure(format=form)
    logs.redact_with(Secrets(["plover-77-quartz-meadow"]))

    LOGGER.warning("sent %s and %s", KEY, "plover-77-quartz-meadow", extra={"call": KEY})
    try:
        raise ValueError(KEY)
    except ValueError:
        LOGGER.exception("failed")

    assert "failed" in written.getvalue()
    assert KEY not in written.getvalue()
    assert "plover-77-quartz-meadow" not in written.getvalue()


def test_a_record_that_cannot_be_formatted_neither_raises_nor_shows_what_it_is_about(written: io.StringIO) -> None:
    record = LOGGER.makeRecord(LOGGER.name, logging.WARNING, __file__, 1, "%d of them", (KEY,), None)

    logs.LogHandler().handle(record)

    assert "a record could not be written (TypeError)" in written.getvalue()
    assert KEY not in written.getvalue()


def test_while_lines_are_held_nothing_is_written_and_afterwards_the_newest_are(
    monkeypatch: pytest.MonkeyPatch, written: io.StringIO
) -> None:
    monkeypatch.setattr(logs, "HELD_LINES", 3)

    with logs.held():
        for number in range(5):
            LOGGER.warning("number %d", number)
        assert written.getvalue() == ""

    lines = written.getvalue().splitlines()
    assert [line.rpartition(": ")[2] for line in lines[:3]] == ["number 2", "number 3", "number 4"]
    assert lines[3].endswith("2 lines before these were not kept while a screen was shown")
    LOGGER.warning("at once")
    assert written.getvalue().endswith("at once\n")


def test_a_terminal_that_is_gone_stops_nobody_who_logs(monkeypatch: pytest.MonkeyPatch, written: io.StringIO) -> None:
    written.close()
    LOGGER.warning("to nobody")

    monkeypatch.setattr(sys, "__stderr__", None)
    LOGGER.warning("to nobody")


@pytest.mark.parametrize(
    ("variable", "value", "allowed"),
    [(logs.LEVEL_VARIABLE, "loud", "debug, info, warning, error"), (logs.FORMAT_VARIABLE, "xml", "text, json")],
)
def test_a_wrong_setting_is_refused_with_the_allowed_ones_and_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, written: io.StringIO, variable: str, value: str, allowed: str
) -> None:
    monkeypatch.setenv(variable, value)

    with pytest.raises(WrongInput, match=f"{variable} is '{value}'; it may be one of {allowed}."):
        logs.configure()

    LOGGER.warning("as before")
    assert written.getvalue().endswith("as before\n")


def test_what_is_given_is_handed_on_to_other_processes_and_taken_back_in_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(logs.LEVEL_VARIABLE, "error")
    monkeypatch.delenv(logs.FORMAT_VARIABLE, raising=False)
    before = LOGGER.getEffectiveLevel()

    with logs.configured():
        assert LOGGER.getEffectiveLevel() == logging.ERROR
        logs.configure(level="DEBUG", format="json")
        assert (os.environ[logs.LEVEL_VARIABLE], os.environ[logs.FORMAT_VARIABLE]) == ("debug", "json")
        assert LOGGER.getEffectiveLevel() == logging.DEBUG
        assert logging.getLogger("asyncio").getEffectiveLevel() == logging.WARNING

    assert os.environ[logs.LEVEL_VARIABLE] == "error"
    assert logs.FORMAT_VARIABLE not in os.environ
    assert (LOGGER.getEffectiveLevel(), logging.getLogger("checkrein").propagate) == (before, True)
