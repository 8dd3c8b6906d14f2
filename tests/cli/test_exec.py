"""`checkrein exec`: programs in shell and Python that know nothing of Checkrein, with their own log as witness."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from http.cookiejar import CookieJar
from urllib.error import HTTPError
from urllib.request import HTTPCookieProcessor, Request, build_opener

import pytest

from tests.cli.shell import PROGRAM, Shell, Started, until
from tests.support.witness import is_alive

TICKS = """
import os, sys, time
def note(word):
    with open(os.environ["WITNESS"], "a") as log:
        log.write(f"{time.time()} {os.getpid()} {word}\\n")
note("begun")
while not os.path.exists(os.environ["WITNESS"] + ".go"):
    note("tick"); time.sleep(0.03)
note("ended")
"""
FAMILY = 'setsid "$0" -c "$1" & setsid sh -c \'"$0" -c "$1" & wait\' "$0" "$1" & wait'
"""Two that tick, each in a session of its own, the second below a shell."""


def start(shell: Shell, *arguments: str) -> Started:
    started = shell.start("exec", *arguments, "--", "sh", "-c", FAMILY, sys.executable, TICKS)
    until(lambda: shell.words().count("begun") == 2)
    return started


def ticks(shell: Shell) -> int:
    return shell.words().count("tick")


def is_quiet(shell: Shell) -> bool:
    before = ticks(shell)
    time.sleep(0.3)
    return ticks(shell) == before


def tickers(shell: Shell) -> set[int]:
    return {int(line.split()[1]) for line in shell.log.read_text().splitlines()}


def none_left(shell: Shell) -> None:
    until(lambda: not any(is_alive(pid) for pid in tickers(shell)))


@pytest.mark.parametrize(("script", "code"), [("exit 0", 0), ("exit 7", 7), ("kill -TERM $$", 143)])
def test_the_exit_code_is_the_programs_own(shell: Shell, script: str, code: int) -> None:
    done = shell.do("exec", "--", "sh", "-c", f"echo out; echo err >&2; {script}")

    assert (done.code, done.out) == (code, "out\n"), "its streams are its own"
    assert "err\n" in done.err


def test_its_arguments_and_its_input_are_its_own(shell: Shell) -> None:
    script = "import sys; print(sys.argv[1:], sys.stdin.read())"

    done = shell.do("exec", "--", sys.executable, "-c", script, "--json", "-h")

    assert (done.code, done.out) == (0, "['--json', '-h'] \n")


def test_a_pause_freezes_all_that_it_has_started_and_a_resume_lets_it_go_on(shell: Shell) -> None:
    """D1 D20: from another terminal; the same processes go on where they were."""
    started = start(shell)

    assert shell.say("pause", "last").code == 0
    assert is_quiet(shell)
    assert shell.say("resume", "last").code == 0
    before = ticks(shell)
    until(lambda: ticks(shell) > before + 1)
    (shell.folder / "log.go").touch()

    assert started.wait() == 0
    assert shell.words().count("begun") == 2
    assert shell.words().count("ended") == 2


def test_a_cancel_ends_all_that_it_has_started(shell: Shell) -> None:
    """D2 D4: what is in a session of its own too."""
    started = start(shell)

    done = shell.say("cancel", "last")

    assert done.code == 0
    assert "killed" in done.out
    assert not any(is_alive(pid) for pid in tickers(shell)), "when the receipt is there, nobody is"
    assert started.wait() == 3
    assert is_quiet(shell)


def test_nothing_outlives_a_kill_9_of_checkrein_and_the_run_is_in_doubt(shell: Shell) -> None:
    """D4 D26"""
    started = start(shell)

    os.kill(started.process.pid, signal.SIGKILL)
    started.wait()

    none_left(shell)
    assert is_quiet(shell)
    done = shell.say("cancel", "last")
    assert done.code == 0
    assert "in doubt" in done.out.lower() or "unknown" in done.out.lower()


def test_a_program_that_was_killed_is_offered_its_own_way_to_go_on_and_no_other(shell: Shell) -> None:
    """Nobody takes it up: what it says of itself is all that is known of it."""
    claude = shell.folder / "claude"
    claude.write_text('#!/bin/sh\nexec "$0.py" -c "$TICKS"\n')
    claude.chmod(0o755)
    (shell.folder / "claude.py").symlink_to(sys.executable)
    started = shell.start("exec", "--", "./claude", TICKS=TICKS)
    shell.saw("tick")
    os.kill(started.process.pid, signal.SIGKILL)
    started.wait()
    none_left(shell)

    redirected = shell.say("redirect", "last", "Something else.")
    cancelled = shell.say("cancel", "last")
    resumed = shell.say("resume", "last")

    going_on = "checkrein exec -- ./claude --continue\n"
    assert f"To go on with it: {going_on}" in redirected.out
    assert "checkrein cancel r-" in redirected.out
    assert cancelled.code == 0
    assert f"To go on from it: {going_on}" in resumed.err
    assert not [done for done in (redirected, cancelled, resumed) if "--resume" in done.out + done.err]


def test_what_it_leaves_behind_ends_with_it(shell: Shell) -> None:
    """D4: also when the program itself is killed from outside."""
    script = 'setsid "$0" -c "$1" & sleep 0.2; while [ ! -e "$WITNESS" ]; do sleep 0.05; done; kill -9 $$'

    done = shell.do("exec", "--", "sh", "-c", script, sys.executable, TICKS)

    assert done.code == 137
    none_left(shell)
    assert is_quiet(shell)


def test_a_cap_on_time_pauses_it_and_says_so(shell: Shell) -> None:
    """D20: and it goes on when a person grants it again."""
    started = shell.start("exec", "--minutes", "0.02", "--", "sh", "-c", FAMILY, sys.executable, TICKS)

    started.until("Elapsed")
    until(lambda: '"paused"' in shell.say("ps", "--json").out)

    assert is_quiet(shell)
    assert shell.say("cancel", "last").code == 0
    assert started.wait() == 3


def test_the_first_ctrl_c_pauses_and_the_second_cancels(shell: Shell) -> None:
    started = start(shell)

    os.kill(started.process.pid, signal.SIGINT)
    started.until("Paused.")
    assert is_quiet(shell)
    os.kill(started.process.pid, signal.SIGINT)

    assert started.wait() == 3
    none_left(shell)


def test_a_request_to_end_leaves_it_unfinished_and_nothing_at_work(shell: Shell) -> None:
    started = start(shell)

    os.kill(started.process.pid, signal.SIGTERM)

    assert started.wait() == 4
    none_left(shell)


def test_a_sealed_program_reaches_nothing_of_this_machine_and_is_stopped_like_any(shell: Shell) -> None:
    """D4: its loopback is its own. The witness is a server here, which hears of the one that is not sealed."""
    with socket.create_server(("127.0.0.1", 0)) as here:
        port = str(here.getsockname()[1])
        script = "import socket, sys; socket.create_connection(('127.0.0.1', int(sys.argv[1])), 5)"
        sealed = shell.do("exec", "--sealed", "--", sys.executable, "-c", script, port)
        here.settimeout(0.2)
        with pytest.raises(TimeoutError):
            here.accept()
        plain = shell.do("exec", "--", sys.executable, "-c", script, port)
        here.accept()[0].close()

    assert (sealed.code, plain.code) == (1, 0)
    assert "refused" in sealed.err
    started = start(shell, "--sealed")
    assert shell.say("cancel", "last").code == 0
    assert started.wait() == 3
    none_left(shell)


def test_sealed_is_refused_with_the_reason_where_it_is_not_possible(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", "plan9")

    done = shell.say("exec", "--sealed", "--", "true")

    assert done.code == 2
    assert "error[not_sealed]" in done.err
    assert "only Linux" in done.err


def test_open_serves_a_page_with_the_run_and_its_bar_beside_the_program(shell: Shell) -> None:
    """D1: the link lets a browser in once; the verbs of its page stop the program. No other run is begun from there."""
    started = start(shell, "--open")
    started.until("&run=")
    found = re.search(r"(http://127\.0\.0\.1:\d+)/enter\?code=\S+&run=(r-\w+)", started.text)
    assert found is not None
    browser = build_opener(HTTPCookieProcessor(CookieJar()))

    with browser.open(Request(found[0], headers={"accept": "text/html"}), timeout=60) as page:
        assert page.url == f"{found[1]}/runs/{found[2]}"
    asked = {"content-type": "application/json", "origin": found[1], "sec-fetch-site": "same-origin"}
    with browser.open(Request(f"{found[1]}/api/runs/{found[2]}/pause", b"{}", asked), timeout=60) as answer:
        assert answer.status in (200, 202)
    started.until("Paused.")
    assert is_quiet(shell)
    with pytest.raises(HTTPError) as refused:
        browser.open(Request(f"{found[1]}/api/runs", b'{"agent": "sh", "goal": "Go."}', asked), timeout=60)
    assert refused.value.code in (404, 422, 409)
    refused.value.close()
    assert shell.say("cancel", "last").code == 0

    assert started.wait() == 3


def test_two_programs_of_one_name_on_one_store_keep_to_their_own(shell: Shell) -> None:
    script = "echo $0 >> $WITNESS.$0; sleep 0.3; echo $0 >> $WITNESS.$0"
    started = [shell.start("exec", "--", "sh", "-c", script, str(number)) for number in range(3)]

    assert [one.wait() for one in started] == [0, 0, 0]
    for number in range(3):
        assert (shell.folder / f"log.{number}").read_text() == f"{number}\n{number}\n"


@pytest.mark.parametrize(
    "script",
    [
        "import signal, time, os; signal.signal(signal.SIGTERM, signal.SIG_IGN); note('begun'); time.sleep(600)",
        "import time; os.close(0); note('begun'); time.sleep(600)",
        "import time\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n"
        "        os.execve(sys.executable, [sys.executable, '-c', 'import os, time; "
        'open(os.sys.argv[1], "a").write(f"0 {os.getpid()} begun\\\\n"); time.sleep(600)\', '
        "os.environ['WITNESS']], {})\n    os._exit(0)\ntime.sleep(600)",
    ],
    ids=["ignores SIGTERM", "closes its input", "forks twice into a session of its own, with another environment"],
)
def test_a_program_that_resists_is_ended_all_the_same(shell: Shell, script: str) -> None:
    """D4"""
    note = "import os, sys\ndef note(word):\n    open(os.environ['WITNESS'], 'a').write(f'0 {os.getpid()} {word}\\n')\n"
    started = shell.start("exec", "--", sys.executable, "-c", note + script)
    shell.saw("begun")

    assert shell.say("cancel", "last").code == 0

    assert started.wait() == 3
    assert not any(is_alive(pid) for pid in tickers(shell))


def test_huge_and_binary_output_passes_as_it_is(shell: Shell) -> None:
    script = "import sys; sys.stdout.buffer.write(bytes(range(256)) * 40_000)"

    with (shell.folder / "out").open("wb") as out:
        done = subprocess.run(
            [*PROGRAM, "exec", "--", sys.executable, "-c", script],
            stdout=out,
            stdin=subprocess.DEVNULL,
            cwd=shell.folder,
            env=shell.environment,
            check=False,
        )

    assert done.returncode == 0
    assert (shell.folder / "out").read_bytes() == bytes(range(256)) * 40_000


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["exec"], 2, "after `--`"),
        (["exec", "--"], 2, "after `--`"),
        (["exec", "claude"], 2, "after `--`"),
        (["exec", "--", "no-such-program"], 127, "no program no-such-program"),
        (["exec", "--", "./nothing"], 127, "There is no such file"),
        (["exec", "--", "./plain"], 126, "may not be executed"),
        (["exec", "--", "/"], 126, "is a folder"),
        (["exec", "--turns", "many", "--", "true"], 2, "whole number"),
        (["exec", "--turns", "0", "--", "true"], 2, "whole number"),
        (["exec", "--cost", "-1", "--", "true"], 2, "number"),
        (["exec", "--minutes", "nan", "--", "true"], 2, "number"),
        (["exec", "--minute", "1", "--", "true"], 2, "--minute"),
    ],
)
def test_what_cannot_be_run_is_said_in_one_sentence(shell: Shell, arguments: list[str], code: int, words: str) -> None:
    (shell.folder / "plain").write_text("echo hi")

    done = shell.say(*arguments)

    assert done.code == code
    assert words in done.err
    assert len(done.err.splitlines()) == 1
