"""One process runs an agent, another one steers it: nothing is shared but the store."""

from __future__ import annotations

import json
import signal

from tests.cli.shell import SAMPLE, Shell, Started, until
from tests.support.witness import is_alive


def test_cancel_from_another_terminal_stops_the_tool_its_child_and_undoes_the_draft(shell: Shell) -> None:
    """D1 D2 D3 D4 D26 D27 D33: by the tool's own log nothing ticks after the receipt, and its child is gone."""
    run = shell.run("slow")
    shell.saw("tick")
    child = shell.child()

    cancelled = shell.do("cancel", "--reason", "wrong path", "--by", "ann")
    ticks = shell.words().count("tick")

    assert cancelled.code == 0, cancelled.err
    assert cancelled.lines[0].startswith("Cancelled. Stopped in ")
    assert "0 tokens after the stop." in cancelled.lines[0]
    assert "Undone: make_draft." in cancelled.lines
    assert "Unknown: crunch (interrupted, may have partly happened)." in cancelled.lines
    assert any("checkrein resolve" in line for line in cancelled.lines)
    assert run.wait() == 3
    assert not is_alive(child)
    assert shell.words().count("discard") == 1
    assert shell.words().count("tick") == ticks
    assert "by ann (wrong path)" in run.text


def test_pause_waits_for_the_tool_and_resume_does_not_do_it_again(shell: Shell) -> None:
    """D20 D23 D28 D30"""
    with shell.sending():
        run = shell.run("mailer")
        shell.saw("sending")
        waits = shell.do("pause", "--wait", "0.1", "--json")

    paused = shell.do("pause")

    assert waits.json[0]["waiting_for"] == "send to finish"
    assert paused.lines[0].startswith("Paused. Stopped in ")
    run.until("Paused. To go on, in another terminal: checkrein resume r-")
    rows = shell.do("ps", "--json").json
    assert [(row["status"], row["agent"], row["is_driven"]) for row in rows] == [("paused", "mailer", True)]

    resumed = shell.do("resume", "--json")

    assert resumed.json[0]["status"] == "running"
    assert run.wait() == 0
    assert shell.words() == ["sending", "sent"]


def test_redirect_and_ask_reach_the_agent(shell: Shell) -> None:
    """D21 D38"""
    run = shell.run("slow")
    shell.saw("tick")

    redirected = shell.say("redirect", "only Q3")

    assert redirected.lines[0].startswith("Redirected. Stopped in ")
    assert "The agent has the instruction." in redirected.lines
    assert run.wait() == 0
    assert "completed  Only Q3, then." in run.text
    assert "told       + only Q3" in run.text


def test_a_side_question_is_answered_while_the_run_goes_on(shell: Shell) -> None:
    run = shell.run("slow")
    shell.saw("tick")

    answer = shell.say("ask", "How far are you?")

    assert answer.out == "Only Q3, then.\n"
    run.until("answer     Only Q3, then.")
    assert run.process.poll() is None


def test_an_approval_is_given_by_name_or_not_at_all(shell: Shell) -> None:
    """D34 D37"""
    run = shell.run("payer")
    run.until("may it call wire_money(amount=5)?")
    assert shell.words() == []
    assert "needs you" in shell.say("ps").out

    unnamed = shell.say("approve")
    unknown = shell.say("approve", "last", "wire_mony")
    approved = shell.say("approve", "last", "wire_money")

    assert unnamed.err.startswith(
        "error[call_not_named]: Nobody sits at a terminal, so say which call is approved: c2 (wire_money) of run r-"
    )
    assert unknown.code == 2
    assert "error[call_not_found]" in unknown.err
    assert approved.out.startswith("Approved wire_money (call c2 of run r-")
    assert approved.lines[1] == "  amount: 5", "what was approved is printed"
    assert run.wait() == 0
    assert shell.words() == ["wired"]
    assert "error[nothing_waiting]" in shell.say("approve", "last").err


def test_a_denied_call_never_happens(shell: Shell) -> None:
    run = shell.run("payer")
    run.until("may it call wire_money")

    denied = shell.say("deny", "--note", "not today", "--json")

    assert denied.json[0]["decision"] == "denied"
    assert run.wait() == 0
    assert shell.words() == []


def test_a_call_that_is_named_finds_the_sub_run_that_waits_for_it(shell: Shell) -> None:
    run = shell.run("boss")
    until(lambda: "needs you" in shell.say("ps").out)

    approved = shell.say("approve", "wire_money")

    assert approved.out.startswith("Approved wire_money (call c2 of run r-"), approved.err
    assert run.wait() == 0
    assert shell.words() == ["wired"]


def killed_while_sending(shell: Shell) -> Started:
    with shell.sending():
        run = shell.run("mailer")
        shell.saw("sending")
        run.process.send_signal(signal.SIGKILL)
        run.wait()
        until(lambda: not is_alive(shell.who_wrote("sending")))
    return run


def test_after_kill_9_a_person_may_say_what_happened_before_anybody_takes_the_run_up(shell: Shell) -> None:
    """D29: as the tutorial has it."""
    run = killed_while_sending(shell)

    resolved = shell.say("resolve", "happened", "--result", '"sent"')

    assert resolved.code == 0, resolved.err
    second = shell.start("run", str(SAMPLE), "--resume", run.run, "--plain")
    assert second.wait() == 0, second.text
    assert shell.words() == ["sending"]


def test_after_kill_9_a_person_says_what_happened_and_the_run_is_taken_up(shell: Shell) -> None:
    """D29 D30: the e-mail is in doubt, nobody sends it again, and its run goes on in another process."""
    run = killed_while_sending(shell)

    listed = shell.say("ps")
    left = run.run
    second = shell.start("run", str(SAMPLE), "--resume", left, "--plain", "--leave")
    assert second.wait() == 4, second.text
    resolved = shell.say("resolve", left, "send", "happened", "--result", '"sent"')

    assert "a worker with agent mailer" in listed.out
    assert f"checkrein run {SAMPLE} --resume {left}" in second.text
    assert resolved.code == 0, resolved.err
    assert f"Take it up with: checkrein run FILE --resume {left}" in resolved.out
    third = shell.start("run", str(SAMPLE), "--resume", "last", "--plain")
    assert third.wait() == 0, third.text
    assert "completed  Sent." in third.text
    assert shell.words() == ["sending"]


def test_resume_without_a_process_is_queued_and_says_how_to_go_on(shell: Shell) -> None:
    """D29 D32"""
    run = shell.run("talker")
    run.until("word20")
    shell.say("pause")
    run.process.send_signal(signal.SIGTERM)
    assert run.wait() == 4
    name = run.run

    resumed = shell.say("resume", name, "summarise and stop")

    assert resumed.lines[0] == "Queued: no process with agent talker is running."
    assert resumed.lines[1] == f"Take it up with: checkrein run FILE --resume {name}"
    again = shell.start("run", str(SAMPLE), "--resume", name, "--plain")
    again.until("told       + summarise and stop")
    assert "error[run_driven]" in shell.do("run", str(SAMPLE), "--resume", name).err
    assert shell.say("cancel", "--json").json[0]["status"] == "cancelled"
    assert again.wait() == 3


def test_a_pause_that_waits_says_for_what_and_the_call_can_be_aborted(shell: Shell) -> None:
    """D20"""
    run = shell.run("locker")
    shell.saw("tick")

    waits = shell.terminal("pause", "--wait", "300")

    waits.until("… waiting for crunch to finish")
    assert "It still waits for crunch to finish." in shell.say("pause", "--wait", "0.1").out
    assert shell.say("ps", "--json").json[0]["settling"] == "crunch to finish"
    assert shell.say("abort", "last", "crunch").lines[0] == "Aborted."
    run.until("Paused. To go on")
    assert waits.wait() == 0
    assert "Paused." in waits.text
    assert shell.say("resume").code == 0
    assert run.wait() == 0


def test_a_left_undo_can_be_tried_again(shell: Shell) -> None:
    """D34"""
    run = shell.run("locker")
    shell.saw("tick")
    cancelled = shell.say("cancel")

    assert run.wait() == 3
    assert any(line.startswith("Left: take_lock (its undo failed") for line in cancelled.lines), cancelled.out
    hint = next(line for line in cancelled.lines if "checkrein retry-undo" in line)
    tried = shell.say(*hint.split(": checkrein ")[1].split())
    assert tried.out.startswith("The undo of take_lock is tried again")
    assert "No process is there to act on it. Take it up with: checkrein run FILE --resume r-" in tried.out


def test_watch_shows_what_another_process_streams_and_ctrl_c_only_leaves(shell: Shell) -> None:
    """D8 D11"""
    run = shell.run("talker")
    run.until("word20")
    watcher = shell.start("watch", "--plain")
    watcher.until("word40")

    watcher.process.send_signal(signal.SIGINT)

    assert watcher.wait() == 0
    assert run.process.poll() is None
    shell.say("cancel")
    after = shell.say("watch", "last", "--json")
    assert after.code == 3
    *_, last = after.json
    assert (last["type"], last["status"]) == ("result", "cancelled")
    text = "".join(item["text"] for item in after.json if item["type"] == "call.chunk")
    assert text.startswith("word1 word2 word3 ")


def test_json_of_a_run_is_every_event_the_text_and_the_result(shell: Shell) -> None:
    """D8"""
    done = shell.do("run", str(SAMPLE), "Say hello.", "--agent", "quick", "--json")

    assert done.code == 0, done.err
    items = done.json
    records = [item for item in items if "seq" in item]
    assert [item["seq"] for item in records] == list(range(1, len(records) + 1))
    assert {item["run"] for item in records} == {items[0]["run"]}
    assert all("at" in item and "type" in item for item in records)
    assert "".join(item["text"] for item in items if item["type"] == "call.chunk") == "Hello.\nAll is done."
    assert items[-1] == {
        "type": "result",
        "run": items[0]["run"],
        "status": "completed",
        "result": "Hello.\nAll is done.",
        "error": None,
    }


def test_what_a_model_or_a_tool_says_never_reaches_the_terminal_raw(shell: Shell) -> None:
    """D16: escapes, C1 controls, DEL and bidi overrides, in text, results, and in what a tool prints."""
    terminal = shell.terminal("run", str(SAMPLE), "Do \x1b[2J it.", "--agent", "evil", "--plain")

    assert terminal.wait() == 0, terminal.text
    for raw in ("\x1b", "\x07", "\x7f", "\u202e", "\x9b"):
        assert raw.encode() not in terminal.raw, terminal.raw
    assert "prints" in terminal.text
    assert terminal.text.count("\\x1b]0;owned") >= 4
    listed = shell.say("ps", "--all").out + shell.say("stops").out + shell.say("watch", "last", "--json").out
    assert "\x1b" not in listed


def test_stops_stand_beside_what_was_shown_and_what_was_noticed(shell: Shell) -> None:
    """D13 D14"""
    shell.run("reciter", "--leave").wait()
    talker = shell.run("talker")
    talker.until("word20")
    shell.say("pause", "last", "--reason", "too long")
    shell.say("cancel", "last", "--reason", "enough")

    everything = shell.say("stops", "--json").json
    flagged = shell.say("stops", "--flagged", "--json").json
    long = shell.say("stops", "--reason", "TOO LONG").out

    assert [stop["verb"] for stop in everything] == ["pause", "pause", "cancel"]
    assert [stop["by"] for stop in flagged] == ["checkrein"]
    assert flagged[0]["flag"]["watcher"] == "confession"
    assert "complained about the fees" not in json.dumps(flagged)
    assert flagged[0]["last_text"].startswith("Of course.")
    assert "too long" in long
    assert "enough" not in long
    assert "last shown: …" in long


def test_a_run_is_named_by_the_beginning_of_its_id(shell: Shell) -> None:
    run = shell.run("quick")
    assert run.wait() == 0
    name = run.run

    for beginning in (name[:9], name[2:9], "last"):
        assert name in shell.say("watch", beginning, "--plain").out


def test_ps_puts_what_waits_for_you_first(shell: Shell) -> None:
    payer = shell.run("payer")
    payer.until("may it call")
    talker = shell.run("talker")
    talker.until("word10")

    rows = shell.say("ps").lines

    assert rows[0].split()[:3] == ["RUN", "STATUS", "AGENT"]
    assert "running, needs you" in rows[1]
    assert "approve wire_money (c2)" in rows[1]
    assert "talker" in rows[2]
    ambiguous = shell.say("pause")
    assert (ambiguous.code, "error[ambiguous_run]: Say which run: r-" in ambiguous.err) == (2, True)
    assert shell.say("deny").out.startswith("Denied wire_money"), "only one of them waits for an answer"


def test_a_terminal_that_lacks_our_characters_keeps_nobody_from_stopping_and_looking(shell: Shell) -> None:
    """The words of an agent, and our own, are not all in the alphabet of every terminal."""
    run = shell.start("run", str(SAMPLE), "Count … the ▶ stock.", "--agent", "slow")
    shell.saw("tick")

    stopped = shell.do("cancel", "--reason", "naïve …", PYTHONIOENCODING="ascii")
    listed = shell.do("ps", "--all", PYTHONIOENCODING="ascii")
    stops = shell.do("stops", PYTHONIOENCODING="ascii")

    assert run.wait() == 3
    assert (stopped.code, listed.code, stops.code) == (0, 0, 0), (stopped, listed, stops)
    assert "Count ? the ? stock." in listed.out
    assert "na?ve ?" in stops.out
