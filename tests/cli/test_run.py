"""`checkrein run`: Ctrl-C at a real terminal, signals, readers that go away, and files of all kinds."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import psutil
import pytest

from checkrein.cli import output
from checkrein.cli.app import run as run_program
from checkrein.cli.session import check_writable
from checkrein.errors import WrongInput
from tests.cli.shell import PROGRAM, SAMPLE, Done, Shell, until
from tests.support.patience import PATIENCE_SECONDS
from tests.support.witness import is_alive

CTRL_C = "\x03"


def test_the_first_ctrl_c_pauses_and_the_second_cancels(shell: Shell) -> None:
    """D1 D2 D22 D26 D28: the first says how to resume and leaves the process alive, the second prints the receipt."""
    run = shell.terminal("run", str(SAMPLE), "Do it.", "--agent", "slow", "--plain")
    shell.saw("tick")
    child = shell.child()

    run.keys(CTRL_C)
    run.until(f"Pausing. To go on later: checkrein resume {run.run}. Ctrl-C again cancels.")
    run.until("The pause still waits for crunch to finish.")
    assert run.process.poll() is None
    assert is_alive(child)
    run.keys(CTRL_C)

    assert run.wait() == 3
    assert "Cancelled. Stopped in " in run.text
    assert "Undone: make_draft." in run.text
    assert shell.words().count("discard") == 1
    assert shell.words()[-1] == "discard"
    assert not is_alive(child)


def test_the_third_ctrl_c_kills_this_process_and_its_tools_end_with_it(shell: Shell) -> None:
    """D4 D16: also while an undo hangs."""
    run = shell.terminal("run", str(SAMPLE), "Do it.", "--agent", "sitter", "--plain")
    shell.saw("tick")
    child = shell.child()
    run.keys(CTRL_C)
    run.until("Ctrl-C again cancels.")
    run.keys(CTRL_C)
    run.until("Ctrl-C a third time kills this process.")
    shell.saw("releasing")
    undoing = int(next(line.split()[1] for line in shell.log.read_text().splitlines() if "releasing" in line))

    run.keys(CTRL_C)

    assert run.wait() == -signal.SIGKILL
    assert "Killing this process." in run.text
    until(lambda: not is_alive(child) and not is_alive(undoing))
    assert "cancelling" in shell.say("ps").out


def test_after_a_resume_ctrl_c_pauses_again(shell: Shell) -> None:
    """D20 D23"""
    run = shell.terminal("run", str(SAMPLE), "Do it.", "--agent", "talker", "--plain")
    run.until("word20")
    run.keys(CTRL_C)
    run.until("Paused. To go on, in another terminal: checkrein resume r-")
    shown = run.text.count("says")
    assert shell.say("resume").lines[0] == "Goes on."
    until(lambda: run.text.count("says") > shown)

    run.keys(CTRL_C)
    until(lambda: run.text.count("Paused. To go on") == 2)

    assert run.process.poll() is None
    assert [row["status"] for row in shell.say("ps", "--json").json] == ["paused"]


def test_a_request_to_end_leaves_the_run_to_be_taken_up(shell: Shell) -> None:
    """D29"""
    with shell.sending():
        run = shell.run("mailer")
        shell.saw("sending")
        run.process.send_signal(signal.SIGTERM)
        until(lambda: shell.say("ps", "--json").json[0]["status"] == "pausing")

    assert run.wait() == 4
    assert f"To go on with it: checkrein run {SAMPLE} --resume {run.run}" in run.text
    second = shell.start("run", str(SAMPLE), "--resume", "last", "--json")
    assert second.wait() == 0, second.text
    assert shell.words() == ["sending", "sent"]


def test_it_is_said_which_other_runs_go_on_in_this_process(shell: Shell) -> None:
    left = shell.run("talker")
    left.until("word5")
    left.process.send_signal(signal.SIGTERM)
    assert left.wait() == 4

    quick = shell.do("run", str(SAMPLE), "Hi.", "--agent", "quick", "--json")

    assert f"Also goes on here: {left.run}, Do it." in quick.err
    assert quick.json[-1]["status"] == "completed"


def test_a_reader_that_goes_away_is_not_a_stop(shell: Shell) -> None:
    with (
        shell.sending(),
        subprocess.Popen(
            [*PROGRAM, "run", str(SAMPLE), "Do it.", "--agent", "mailer", "--plain"],
            cwd=shell.folder,
            env=shell.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as process,
    ):
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        shell.saw("sending")
        shell.let_send()

        assert process.wait(timeout=PATIENCE_SECONDS) == 0
        assert process.stderr is not None
        assert process.stderr.read() == b""
    assert shell.words() == ["sending", "sent"]


def test_a_watcher_whose_reader_goes_away_ends_and_the_run_does_not(shell: Shell) -> None:
    run = shell.run("talker")
    run.until("word5")
    with subprocess.Popen(
        [*PROGRAM, "watch", "--plain"], cwd=shell.folder, env=shell.environment, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()

        assert process.wait(timeout=PATIENCE_SECONDS) == 0
    assert run.process.poll() is None


def test_a_failed_run_has_exit_code_1_and_says_why(shell: Shell) -> None:
    failed = shell.do("run", str(SAMPLE), "Do it.", "--agent", "broken", "--plain")

    assert failed.code == 1, failed.err
    assert "failed " in failed.lines[-1]
    assert "The script of scripted has 0 turns" in failed.out
    assert "Traceback" not in failed.out + failed.err


def test_leave_ends_with_code_4_when_the_run_needs_somebody(shell: Shell) -> None:
    run = shell.run("payer", "--leave")

    assert run.wait() == 4
    assert "may it call wire_money(amount=5)?" in run.text


def test_a_run_goes_on_from_where_another_one_ended(shell: Shell) -> None:
    """D6"""
    first = shell.run("quick", "--thread", "letters", "--owner", "ann")
    assert first.wait() == 0
    goes_on = ("run", str(SAMPLE), "And now?", "--agent", "talker", "--continue", first.run, "--plain")
    stranger = shell.do(*goes_on, "--owner", "bob")
    assert (stranger.code, f"Run {first.run} belongs to ann" in stranger.err) == (2, True)
    again = shell.start(*goes_on)
    again.until("word5")

    assert shell.say("cancel", again.run).code == 0
    rows = {row["run"]: row for row in shell.say("ps", "--all", "--json").json}

    assert rows[again.run]["thread"] == "letters"
    assert rows[again.run]["owner"] == "ann"
    assert again.wait() == 3


def test_a_busy_thread_refuses_when_asked_to(shell: Shell) -> None:
    talker = shell.run("talker", "--thread", "t")
    talker.until("word5")

    refused = shell.do("run", str(SAMPLE), "Me too.", "--agent", "quick", "--thread", "t", "--if-busy", "refuse")

    assert refused.code == 2
    assert refused.err.startswith("error[thread_busy]: ")


AGENT = """
from checkrein import Agent
from checkrein.models import ScriptedModel
one = Agent("one", model=ScriptedModel(["Hi."]))
"""

# fmt: off
WRONG = {
    "no file":       ("run missing.py go",          "file_not_found",  "There is no file missing.py"),
    "no agents":     ("run empty.py go",            "no_agents",       "has no agent at its top level"),
    "syntax":        ("run syntax.py go",           "file_broken",     "syntax.py, line 2"),
    "raises":        ("run raises.py go",           "file_broken",     "cannot be imported (line 3): ZeroDivision"),
    "exits":         ("run exits.py go",            "file_broken",     "SystemExit"),
    "bad name":      ("run my-agent.py go",         "file_name",       "call it something like agent.py"),
    "shadows":       ("run json.py go",             "file_name",       "give it another one"),
    "unknown agent": ("run one.py go --agent two",  "agent_not_found", "has no agent two; it has: one"),
    "several":       ("run both.py go",             "ambiguous_agent", "Choose one with --agent"),
    "no goal":       ("run one.py",                 "no_goal",         "Say what the agent is to do"),
    "no dir":        ("run one.py go --store one.py/x.db", "store_not_writable", "is not a folder. Name a place"),
    "serve there":   ("serve one.py --store one.py/x.db", "store_not_writable", "is not a folder. Name a place"),
    "demo there":    ("demo --folder one.py --plain",  "folder_not_writable", "Name another one with --folder"),
    "no server":     ("start one go",               "no_server",       "Say on which server, with --server URL"),
    "no ending":     ("run my-agent go",            "file_not_found",  "my-agent; there is my-agent.py."),
    "no module":     ("run not_there go",           "file_not_found",  "no module not_there that can be imported"),
    "bad store":     ("ps --store mysql://x",       "misuse",          "is not the address of a journal"),
    "no store":      ("pause r-1 --store sqlite:///nowhere/x.db", "store_not_found", "There is no store"),
    "not ours":      ("ps --store sqlite:///one.py", "store_not_ours", "one.py"),
    "unknown run":   ("pause r-nope",               "run_not_found",   "There is no run 'r-nope'"),
    "none is left":  ("pause",                      "no_unfinished_run", "No run is unfinished"),
    "finished":      ("pause last",                 "finished",        "completed"),
    "resume over":   ("run one.py --resume last",   "run_over",        'with: checkrein run one.py "…" --continue r-'),
    "resume verb":   ("resume last",                "finished",        'checkrein run FILE "…" --continue r-'),
    "other's":       ("resolve last maybe",         "unknown_answer",  "say happened, did_not_happen or undo"),
    "no json":       ("resolve last happened --result {x",  "not_json", "--result is not JSON"),
    "no doubt":      ("resolve last happened",      "nothing_waiting", "has no call that is in doubt"),
    "forgotten":     ("redirect last",              "usage",           "The instruction is missing"),
    "unknown option": ("cancel --hard",             "usage",           "--hard"),
    "bad choice":    ("cancel --undo some",         "usage",           "'open', 'all', 'none'"),
}
# fmt: on


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Shell:
    """A folder with files of all kinds, and a store with one run that is over."""
    shell = Shell(tmp_path_factory.mktemp("wrong"))
    files = {
        "one.py": AGENT,
        "both.py": AGENT + 'two = Agent("two", model=ScriptedModel(["Hi."]))\n',
        "empty.py": "from checkrein import Agent\n",
        "syntax.py": "\ndef (:\n",
        "raises.py": "import os\n\n1 / 0\n",
        "exits.py": "import sys\nsys.exit(3)\n",
        "my-agent.py": AGENT,
        "json.py": AGENT,
    }
    for name, text in files.items():
        (shell.folder / name).write_text(text)
    assert shell.do("run", "one.py", "Say hi.").code == 0
    return shell


IMPORTING = {
    *("no agents", "syntax", "raises", "exits", "shadows", "unknown agent", "several"),
    *("no goal", "no module", "resume over"),
}
"""These import a file, or try to, which is for a process of its own."""


@pytest.mark.parametrize("mistake", WRONG)
def test_wrong_input_gets_one_sentence_a_code_and_exit_2(
    folder: Shell, mistake: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments, code, words = WRONG[mistake]

    if mistake in IMPORTING:
        done = folder.do(*arguments.split())
    else:
        monkeypatch.chdir(folder.folder)
        monkeypatch.setattr(output, "_options", [])
        monkeypatch.setattr(output, "_file", ["FILE"])
        done = Done(run_program(arguments.split()), *capsys.readouterr())

    assert done.code == 2, done
    assert done.out == ""
    assert done.err.startswith(f"error[{code}]: ")
    assert words in done.err
    assert done.err.count("\n") == 1


def test_wrong_input_is_json_for_programs(folder: Shell) -> None:
    done = folder.do("pause", "r-nope", "--json")

    assert (done.code, done.out) == (2, "")
    assert done.err.startswith('{"code": "run_not_found", "message": "There is no run ')


def test_a_prefix_of_two_runs_names_both(folder: Shell) -> None:
    folder.do("run", "one.py", "Say hi again.")

    done = folder.do("watch", "r-")

    assert done.err.startswith("error[ambiguous_run]: 'r-' is the beginning of r-")


def test_the_store_may_be_named_by_a_variable_and_hints_stay_short(shell: Shell) -> None:
    variables = {"CHECKREIN_STORE": f"sqlite:///{shell.folder}/other.db"}
    run = shell.run("talker", **variables)
    run.until("word5")

    assert shell.say("pause", **variables).code == 0

    run.until(f"Paused. To go on, in another terminal: checkrein resume {run.run}. ")
    assert (shell.folder / "other.db").exists()
    assert not (shell.folder / ".checkrein").exists()


def test_a_store_named_on_the_command_line_is_in_every_hint(shell: Shell) -> None:
    run = shell.run("payer", "--store", "here.db", "--leave")

    assert run.wait() == 4
    assert f"checkrein run {SAMPLE} --resume {run.run} --store here.db" in run.text


def test_a_store_that_may_not_be_written_to_is_said_before_anything_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "runs.db"
    monkeypatch.setattr(os, "access", lambda path, mode: False)

    for obstacle in ("cannot be made", "may not be written to: no run can be started here, and none stopped"):
        with pytest.raises(WrongInput, match=f"{obstacle}.*Name a place that is yours with --store") as refused:
            check_writable(f"sqlite:///{store}")
        assert refused.value.code == "store_not_writable"
        store.touch()


def test_a_run_in_memory_does_not_say_that_it_is_kept(shell: Shell) -> None:
    run = shell.run("payer", "--store", "memory:", "--leave")

    assert run.wait() == 4
    assert "It was in memory only, and is gone: with --store PATH it would be kept." in run.text
    assert "It is kept" not in run.text
    assert "--resume" not in run.text


def test_a_pause_in_memory_does_not_send_anybody_to_another_terminal(shell: Shell) -> None:
    run = shell.terminal("run", str(SAMPLE), "Do it.", "--agent", "talker", "--plain", "--store", "memory:")
    run.until("word20")

    run.keys(CTRL_C)

    run.until("Paused. It is in memory only: no other terminal can reach it to go on. Ctrl-C again cancels.")
    run.keys(CTRL_C)
    assert run.wait() == 3
    assert "checkrein resume" not in run.text


def test_nothing_is_left_behind_when_a_run_ends(shell: Shell) -> None:
    """D4: no worker, no supervisor."""
    with shell.sending():
        run = shell.run("mailer")
        shell.saw("sending")
        family = psutil.Process(run.process.pid).children(recursive=True)
    assert family

    assert run.wait() == 0

    until(lambda: not any(process.is_running() for process in family))
    assert os.listdir(shell.folder / ".checkrein")
