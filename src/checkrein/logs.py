"""The logger of a program that drives or serves runs: how much it says, in which form, and where it goes.

The command line and the driver processes of `checkrein serve` call `configure`; a library never does, so that whoever
embeds Checkrein keeps the logging they have. Lines go to standard error. A line is written clean and without secrets:
nothing in it acts on a terminal, and no text in it can pass for another line.

Nobody who logs waits for whoever reads: `LineWriter` writes in a thread of its own, and where nobody reads, the oldest
lines are dropped, counted, and the number is said later. A front and a driver say everything else through one too.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from select import select
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TextIO

from checkrein.core.escape import printable
from checkrein.errors import WrongInput

if TYPE_CHECKING:
    from checkrein.secrets import Secrets

LEVEL_VARIABLE: Final = "CHECKREIN_LOG_LEVEL"
FORMAT_VARIABLE: Final = "CHECKREIN_LOG_FORMAT"
LEVELS: Final[Mapping[str, int]] = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}
FORMATS: Final = ("text", "json")
DEFAULT_LEVEL: Final = "warning"
DEFAULT_FORMAT: Final = "text"

OURS: Final = "checkrein"
OTHERS: Final = ("asyncio", "uvicorn")
"""What we run on. Of these only warnings and errors are logged, whatever the level: the rest is theirs to debug."""
ABOUT: Final = ("run", "call", "epoch")
"""What a record may be about, as its `extra` says."""
HELD_LINES: Final = 1000
"""How many lines are kept while they cannot be written: the newest."""
HELD_BYTES: Final = 1 << 20
"""How much of them, where lines are long."""
FLUSH_SECONDS: Final = 1.0
"""How long the end of a process waits for its last lines to be written."""


def configure(level: str | None = None, format: str | None = None) -> None:
    """Log in this way from now on; what is None is as the environment says, or else the default.

    What is given also stands in the environment afterwards, for the processes that this one starts. Raises `WrongInput`
    for a level or a format that there is none of, with nothing changed.
    """
    chosen_level = _chosen(level, LEVEL_VARIABLE, tuple(LEVELS), DEFAULT_LEVEL)
    chosen_format = _chosen(format, FORMAT_VARIABLE, FORMATS, DEFAULT_FORMAT)
    for variable, given in ((LEVEL_VARIABLE, level), (FORMAT_VARIABLE, format)):
        if given is not None:
            os.environ[variable] = given.lower()
    _handler.setFormatter(JsonFormatter() if chosen_format == "json" else TextFormatter())
    for name in (OURS, *OTHERS):
        logger = logging.getLogger(name)
        logger.setLevel(LEVELS[chosen_level] if name == OURS else max(LEVELS[chosen_level], logging.WARNING))
        # Not also to handlers of the root logger: those are the author's, and know nothing of secrets.
        logger.propagate = False
        if _handler not in logger.handlers:
            logger.addHandler(_handler)


@contextmanager
def configured() -> Iterator[None]:
    """Log as the environment says; afterwards everything is as it was before, whatever was configured inside."""
    loggers = [logging.getLogger(name) for name in (OURS, *OTHERS)]
    before = [(logger, logger.level, logger.propagate) for logger in loggers]
    variables = {name: os.environ.get(name) for name in (LEVEL_VARIABLE, FORMAT_VARIABLE)}
    configure()
    try:
        yield
    finally:
        for logger, level, propagate in before:
            logger.removeHandler(_handler)
            logger.setLevel(level)
            logger.propagate = propagate
        for name, value in variables.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _chosen(given: str | None, variable: str, allowed: tuple[str, ...], default: str) -> str:
    value = given or os.environ.get(variable) or default
    if value.lower() not in allowed:
        raise WrongInput(f"{variable} is {value!r}; it may be one of {', '.join(allowed)}.", code="usage")
    return value.lower()


def redact_with(secrets: Secrets) -> None:
    """Take these out of every line too. Those of the environment are always taken out."""
    _redactor.also(secrets)


@contextmanager
def held() -> Iterator[None]:
    """While inside, nothing is written: a full screen is shown. What was logged meanwhile is written afterwards."""
    _handler.hold()
    try:
        yield
    finally:
        _handler.release_lines()


# -- what is written


class _Redactor:
    """Takes secrets out of texts. Made when the first line is: most programs never log one."""

    def __init__(self) -> None:
        self._secrets: tuple[Secrets, ...] | None = None

    def also(self, secrets: Secrets) -> None:
        if secrets and secrets not in self._all():
            self._secrets = (*self._all(), secrets)

    def text(self, text: str) -> str:
        for secrets in self._all():
            text = secrets.text(text)
        return text

    def _all(self) -> tuple[Secrets, ...]:
        if self._secrets is None:
            from checkrein.secrets import Secrets

            self._secrets = (Secrets.from_environment(),)
        return self._secrets


_redactor: Final = _Redactor()


def _message(record: logging.LogRecord) -> str:
    return _redactor.text(record.getMessage())


def _traceback(record: logging.LogRecord) -> str:
    if not record.exc_info:
        return ""
    return _redactor.text(logging.Formatter().formatException(record.exc_info))


def _about(record: logging.LogRecord) -> dict[str, Any]:
    found = {name: getattr(record, name, None) for name in ABOUT}
    return {
        name: value if isinstance(value, int) else _redactor.text(str(value))
        for name, value in found.items()
        if value not in (None, "")
    }


class TextFormatter(logging.Formatter):
    """A line for people: when, how bad, which process, who says it, what it is about. A traceback is indented below."""

    def format(self, record: logging.LogRecord) -> str:
        at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record.created))
        about = "".join(f" {name}={_on_one_line(str(value))}" for name, value in _about(record).items())
        head = f"{at}.{record.msecs:03.0f} {record.levelname} [{record.process}] {record.name}{about}: "
        lines = [head + _on_one_line(_message(record))]
        lines += [f"    {printable(line)}" for line in _traceback(record).splitlines()]
        return "\n".join(lines)


class JsonFormatter(logging.Formatter):
    """One JSON object on one line, in plain ASCII."""

    def format(self, record: logging.LogRecord) -> str:
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        fields = {
            "time": f"{at}.{record.msecs:03.0f}Z",
            "level": record.levelname.lower(),
            "process": record.process,
            "logger": record.name,
            **_about(record),
            "message": _message(record),
        }
        if traceback := _traceback(record):
            fields["traceback"] = traceback
        return json.dumps(fields, ensure_ascii=True).replace("\x7f", "\\u007f")


def _on_one_line(text: str) -> str:
    return printable(text).replace("\n", "\\n")


# -- where it goes


class LineWriter:
    """Writes lines to a stream, in a thread of its own: whoever gives it one never waits, whoever reads or does not.

    Of the lines that nobody reads the newest are kept. How many were dropped is said as soon as somebody reads again. A
    stream without a file descriptor is one of this process, and is written to at once.
    """

    def __init__(self, stream: Callable[[], TextIO | None]) -> None:
        """`stream` is asked with every line: another one may have taken its place."""
        self._stream = stream
        self._start_over()
        _writers.add(self)

    def _start_over(self) -> None:
        self._changed = threading.Condition()
        self._lines: deque[_Line] = deque()
        self._bytes = 0
        self._dropped = 0
        self._target: _Target | None = None
        self._is_writing = False
        self._thread: threading.Thread | None = None

    def write(self, line: str) -> None:
        """Have it written, with an end of line. Nothing is raised: if there is no stream, nobody reads it."""
        stream = self._stream()
        if stream is None:
            return
        try:
            descriptor = stream.fileno()
        except (OSError, ValueError):
            with suppress(OSError, ValueError):  # it is closed
                stream.write(f"{line}\n")
                stream.flush()
            return
        data = f"{line}\n".encode(getattr(stream, "encoding", None) or "utf-8", "backslashreplace")
        with self._changed, suppress(OSError):
            self._keep(data, stream, descriptor)

    def _keep(self, data: bytes, stream: TextIO, descriptor: int) -> None:
        if self._target is None or self._target.stream is not stream:
            self._target = _Target(stream, descriptor)
        self._lines.append(_Line(data, self._target))
        self._bytes += len(data)
        while len(self._lines) > HELD_LINES or (self._bytes > HELD_BYTES and len(self._lines) > 1):
            self._bytes -= len(self._lines.popleft().data)
            self._dropped += 1
        if self._thread is None:
            self._thread = threading.Thread(target=self._write_all, args=(self._changed,), daemon=True, name="lines")
            self._thread.start()
        self._changed.notify_all()

    def flush(self, seconds: float = FLUSH_SECONDS) -> bool:
        """Wait until everything is written, for so long at most; whether it is."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._lines and not self._is_writing, seconds)

    def _write_all(self, changed: threading.Condition) -> None:
        while True:
            with changed:
                self._is_writing = False
                if not self._lines:
                    # Where the stream leads may be changed while nothing is written: it is asked again next time.
                    self._target = None
                    changed.notify_all()
                changed.wait_for(lambda: self._lines)
                line = self._lines.popleft()
                self._bytes -= len(line.data)
                dropped, self._dropped = self._dropped, 0
                self._is_writing = True
            with suppress(OSError):  # it leads nowhere any more
                if dropped:
                    line.to.write(b"%d lines before this one were dropped: nobody read them\n" % dropped)
                line.to.write(line.data)
            del line


class _Target:
    """Where a stream led when a line was given: also if its descriptor is closed, and another file has the number."""

    def __init__(self, stream: TextIO, descriptor: int) -> None:
        self.stream = stream
        self._descriptor = -1
        self._descriptor = os.dup(descriptor)

    def write(self, data: bytes) -> None:
        while data:
            try:
                data = data[os.write(self._descriptor, data) :]
            except BlockingIOError:  # somebody else has set it so
                select([], [self._descriptor], [])

    def __del__(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)


class _Line(NamedTuple):
    data: bytes
    to: _Target


_writers: Final[weakref.WeakSet[LineWriter]] = weakref.WeakSet()


def _start_over_after_fork() -> None:
    # Their threads are not in the copy, and a lock may have been taken in the middle of a line.
    for writer in list(_writers):
        writer._start_over()


os.register_at_fork(after_in_child=_start_over_after_fork)


def flush(seconds: float = FLUSH_SECONDS) -> None:
    """Before this process ends at once: wait for what was logged to be written, for so long at most."""
    _stderr.flush(seconds)


class LogHandler(logging.Handler):
    """Writes to the standard error that this process was started with, unless lines are held."""

    def __init__(self) -> None:
        super().__init__()
        self._held: deque[str] | None = None
        self._lost = 0

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self.format(record)
        except Exception as error:  # a mistake in whoever logs must not stop what it logs about
            # Without what it was about: that has not been looked through for secrets.
            line = f"{record.levelname} {record.name}: a record could not be written ({type(error).__name__})"
        if self._held is None:
            _stderr.write(line)
            return
        self._lost += len(self._held) == HELD_LINES
        self._held.append(line)

    def flush(self) -> None:
        """Called at the end of the process."""
        _stderr.flush()

    def hold(self) -> None:
        _stderr.flush()
        with self._locked():
            self._held, self._lost = deque(maxlen=HELD_LINES), 0

    def release_lines(self) -> None:
        """Write what was held, and hold no longer."""
        with self._locked():
            lines, self._held = self._held or (), None
            for line in lines:
                _stderr.write(line)
            lost = self._lost
        if lost:
            logging.getLogger(__name__).warning("%d lines before these were not kept while a screen was shown", lost)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        self.acquire()
        try:
            yield
        finally:
            self.release()


# Looked up each time: while tools' prints are caught, this leads to the terminal and `sys.stderr` does not.
_stderr: Final = LineWriter(lambda: sys.__stderr__)
_handler: Final = LogHandler()
