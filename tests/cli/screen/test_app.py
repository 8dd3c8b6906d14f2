"""The screen over a real run: keys become verbs, and only events change what is shown."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from checkrein import Run, Runtime
from checkrein.cli.screen.app import READ_FIRST_SECONDS, Left, RunScreen
from checkrein.cli.screen.watch import RunWatch
from checkrein.control.control import Control
from checkrein.control.view import AnswerView, DoubtView, RunView
from checkrein.core.enums import Answer, Status
from checkrein.errors import StoreUnavailable
from checkrein.journal.base import Journal, Recorded
from checkrein.models import Turn, User
from checkrein.processes.identity import this_process
from tests.cli.screen.pilot import SLOWLY, Seen, agent, on_screen, until_status
from tests.cli.screen.sample import view
from tests.support.agent_tools import lines, times
from tests.support.patience import PATIENCE_SECONDS

pytestmark = pytest.mark.anyio


async def start(runtime: Runtime, turns: Any, **options: Any) -> Run:
    return await runtime.start(agent(turns, **options), "Which customers will churn?")


@asynccontextmanager
async def talking(runtime: Runtime, **options: Any) -> AsyncIterator[tuple[Run, Seen]]:
    """A run in the middle of its answer, on the screen."""
    run = await start(runtime, [SLOWLY])
    async with on_screen(runtime, run, **options) as seen:
        await seen.until("one two")
        yield run, seen


# -- pause and resume


async def test_a_pause_shows_only_when_it_has_happened_and_a_resume_goes_on(runtime: Runtime) -> None:
    """D20 D23"""
    run = await start(runtime, [SLOWLY])
    async with on_screen(runtime, run) as seen:
        await seen.until("▶ Running", "one two")

        await seen.keys("p")
        await seen.until("‖ Paused", "p  Resume", "Stopped in")
        assert (await run.state()).status is Status.PAUSED

        await seen.keys("p")
        await seen.until("▶ Running", "p  Pause")
        await run.cancel()


async def test_while_a_pause_waits_for_a_tool_it_is_named_and_x_aborts_it(runtime: Runtime, log: str) -> None:
    """D28"""
    run = await start(runtime, [Turn("Numbers.", calls=[("crunch", {"log": log})]), SLOWLY])
    async with on_screen(runtime, run) as seen:
        await seen.until_true(lambda: "tick" in lines(log))

        await seen.keys("p")
        await seen.until("◐ Pausing…", "waits for crunch to finish,", "x  Don't wait")
        assert "‖ Paused" not in seen.text(), "it is not paused while a tool ticks"

        await seen.keys("x")
        await seen.until("‖ Paused")
        stopped_at = time.time()

        await asyncio.sleep(0.3)
        assert max(times(log, "tick")) <= stopped_at
        await run.cancel()


async def test_a_resume_can_carry_an_instruction(runtime: Runtime) -> None:
    """D32"""
    churn = agent([SLOWLY])
    run = await runtime.start(churn, "Which customers will churn?")
    async with on_screen(runtime, run) as seen:
        await seen.until("one two")
        await seen.keys("p")
        await seen.until("‖ Paused")

        await seen.keys("i")
        await seen.until("Resume with an instruction.", "It stays paused until you send.")
        await seen.write("and be brief")
        await seen.keys("enter")

        await seen.until("▶ Running", "(resume) + and be brief · the agent has it")
        assert User("and be brief") in churn.model.asked[-1].messages  # type: ignore[attr-defined]
        await run.cancel()


# -- redirect


async def test_redirect_opens_with_the_next_step_and_letters_in_it_trigger_nothing(runtime: Runtime, log: str) -> None:
    """D21 D38"""
    numbers = Turn("Numbers.", calls=[("crunch", {"log": log})])
    churn = agent([numbers, numbers, "never"], plan=["Score churn risk", "Write summary memo"])
    run = await runtime.start(churn, "Which customers will churn?")
    async with on_screen(runtime, run, size=(80, 24)) as seen:
        await seen.until_true(lambda: "tick" in lines(log))

        await seen.keys("r")
        await seen.until("the agent works on until you send.", " Score churn risk")
        await seen.write(" pcpqx only Q3")
        await seen.until("Score churn risk pcpqx only Q3")
        assert (await run.state()).status is Status.RUNNING

        await seen.keys("enter")
        await seen.until("(redirect)", "{+pcpqx only Q3+}", "the agent has it")
        await seen.until_gone("Enter sends")
        assert User("Score churn risk pcpqx only Q3") in churn.model.asked[-1].messages  # type: ignore[attr-defined]
        await run.cancel()


async def test_a_draft_survives_closing_and_whatever_happens_to_the_run(runtime: Runtime) -> None:
    async with talking(runtime) as (run, seen):
        await seen.keys("r")
        await seen.write("half a thought")

        await run.pause()
        await seen.until("‖ Paused", "half a thought", "it stays paused until you send")
        await seen.keys("escape")
        await seen.until_gone("half a thought")
        await run.resume()
        await seen.until("▶ Running")
        await seen.keys("r")
        await seen.until("half a thought")

        await run.cancel()
        await seen.until("■ Cancelled", "half a thought", "Nothing can be sent any more.")


async def test_ctrl_c_pauses_also_while_a_person_writes(runtime: Runtime) -> None:
    async with talking(runtime) as (run, seen):
        await seen.keys("r")
        await seen.write("half a thought")

        await seen.keys("ctrl+c")

        await seen.until("‖ Paused", "half a thought", "Ctrl-C again cancels it.")
        await run.cancel()


async def test_what_was_refused_is_a_draft_again_and_the_reason_is_said(runtime: Runtime) -> None:
    class Refusing(Control):
        async def redirect(self, *_: Any, **__: Any) -> Any:
            raise StoreUnavailable("The store is away.")

    control = Refusing(runtime.journal, this_process())
    async with talking(runtime, control=control) as (run, seen):
        await seen.keys("r")
        await seen.write("only Q3")
        await seen.keys("enter")

        await seen.until("Redirect was not taken: The store is away.")
        await seen.keys("r")
        await seen.until(" only Q3")
        await run.cancel()


async def test_a_pasted_text_of_several_lines_stays_whole(runtime: Runtime) -> None:
    from textual.events import Paste

    async with talking(runtime) as (run, seen):
        await seen.keys("r")
        assert seen.screen.focused is not None

        seen.screen.focused.post_message(Paste("only\nthe third\n quarter"))

        await seen.until("only the third quarter")
        await run.cancel()


# -- cancel


async def test_a_cancel_asks_nothing_and_shows_its_receipt(runtime: Runtime, log: str) -> None:
    """D1 D5 D22 D33"""
    run = await start(
        runtime,
        [
            Turn("A draft.", calls=[("make_draft", {"log": log})]),
            Turn("Now.", calls=[("crunch", {"log": log})]),
            "never",
        ],
    )
    async with on_screen(runtime, run) as seen:
        await seen.until_true(lambda: "tick" in lines(log))
        await seen.until("make_draft open, cancel undoes it", "takes back make_draft")

        await seen.keys("c")
        await seen.until("■ Cancelled", "Stopped in", "0 tokens after the stop", "Undone: make_draft", "q  Leave")
        assert "discard draft-7" in lines(log)
        assert "crunch (killed" in seen.text()

        await seen.keys("p")
        await seen.until("Pause was not taken")
        await seen.keys("q")
        await seen.until_true(lambda: seen.screen.return_value is Left.FINISHED)


async def test_q_does_not_leave_a_run_at_work_that_this_terminal_drives(runtime: Runtime) -> None:
    async with talking(runtime) as (run, seen):
        await seen.keys("q")
        await seen.until("This terminal drives the run.")
        assert seen.screen.return_value is None

        await seen.keys("p")
        await seen.until("‖ Paused")
        await seen.keys("q")
        await seen.until_true(lambda: seen.screen.return_value is Left.PAUSED)
    await run.cancel()


# -- what it asks for


async def test_consent_is_given_with_a_key_once_it_can_have_been_read(runtime: Runtime, log: str) -> None:
    """D34"""
    run = await start(runtime, [Turn("Pay.", calls=[("wire_money", {"log": log})]), "Paid."])
    async with on_screen(runtime, run) as seen:
        await seen.until("◆ Running, needs you", "May it call wire_money", "y  Approve")
        assert lines(log) == []

        await asyncio.sleep(READ_FIRST_SECONDS + 0.1)
        await seen.keys("y")

        await seen.until("✓ Completed", "Paid.")
        assert lines(log) == ["wired"]


async def test_while_something_is_halted_the_screen_says_what_who_and_why_above_all_else(runtime: Runtime) -> None:
    async with talking(runtime) as (run, seen):
        await runtime.halt("agent", "mailer", reason="mails to the wrong people", by="olga")

        await seen.until("HALTED: agent mailer, by olga since", "mails to the wrong people")
        assert "HALTED" in seen.lines()[0]

        await runtime.reset("agent", "mailer", by="olga")
        await seen.until_gone("HALTED")
        assert (await run.state()).status is Status.RUNNING
        await run.cancel()


class Still:
    """A watch on a run that looks the same for ever."""

    def __init__(self, shown: RunView) -> None:
        self._shown = shown
        self.is_fresh, self.is_driven, self.away, self.away_since, self.halts = True, True, "", 0.0, ()

    def view(self) -> RunView:
        return self._shown

    async def run(self) -> None:
        await asyncio.Event().wait()


class Noted:
    """A control that notes what it is asked for."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []

    async def resolve(self, run: str, **given: Any) -> None:
        self.asked.append(given)


@pytest.mark.parametrize(
    ("typed", "sent"),
    [("42", {"result": 42}), ("sent it", {"result": "sent it"}), ("", {})],
    ids=["JSON", "plain words", "nothing"],
)
async def test_who_says_that_a_call_happened_is_asked_for_its_result(
    typed: str, sent: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("checkrein.cli.screen.app.READ_FIRST_SECONDS", 0)
    answers = (AnswerView(answer=Answer.HAPPENED, enabled=True, consequence="its result is recorded"),)
    still = Still(view(doubts=(DoubtView(call="c8", name="send", answers=answers),)))
    control = Noted()
    screen = RunScreen(cast(RunWatch, still), cast(Control, control), "r-7f3", owns=True, by="ann")
    async with screen.run_test(size=(80, 24)) as pilot:
        seen = Seen(screen, pilot)
        await seen.until("1  It happened")
        await seen.keys("1")
        await seen.until("What did it return?", "without a result")
        assert control.asked == []

        await seen.write(typed)
        await seen.keys("enter")

        await seen.until_true(lambda: bool(control.asked))
        assert control.asked == [{"by": "ann", "call": "c8", "answer": Answer.HAPPENED, **sent}]
    await screen.settle(at_once=True)


async def test_v_shows_all_that_a_call_in_question_is_given_and_goes_back(runtime: Runtime) -> None:
    given = {"log": f"begin {'x' * 400}\nend-of-it"}  # it is never carried out
    run = await start(runtime, [Turn("Pay.", calls=[("wire_money", given)]), "Paid."])
    async with on_screen(runtime, run, size=(80, 24)) as seen:
        await seen.until("May it call wire_money", "log: begin", "v  View all")
        assert not seen.sees("end-of-it")

        await seen.keys("v")
        await seen.until("┊ end-of-it", "y  Approve")

        await seen.keys("v")
        await seen.until_gone("end-of-it")
        await run.cancel()


async def test_at_80_by_24_a_question_leaves_the_work_and_what_it_changed_in_view(runtime: Runtime, log: str) -> None:
    turns = [
        Turn("A draft.", calls=[("make_draft", {"log": log})]),
        Turn("Pay.", calls=[("wire_money", {"log": log})]),
        "Paid.",
    ]
    run = await start(runtime, turns)
    async with on_screen(runtime, run, size=(80, 24)) as seen:
        text = await seen.until("May it call wire_money", "y  Approve", "n  Deny", "Cancel")

        rows = text.split("\n")
        assert not any(row.strip() in ("CHANGED", "STEPS") and not rows[n + 1].strip() for n, row in enumerate(rows))
        assert "cancel undoes it" in text
        await run.cancel()


async def test_a_key_that_came_before_the_question_could_be_read_answers_nothing(
    runtime: Runtime, log: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("checkrein.cli.screen.app.READ_FIRST_SECONDS", 3600)
    run = await start(runtime, [Turn("Pay.", calls=[("wire_money", {"log": log})]), "Paid."])
    async with on_screen(runtime, run) as seen:
        await seen.until("y  Approve")

        await seen.keys("y")

        await seen.until("read it, then answer")
        assert lines(log) == []
        await run.cancel()


async def test_a_side_question_is_answered_while_the_run_goes_on(runtime: Runtime, log: str) -> None:
    run = await start(
        runtime, [Turn("Numbers.", calls=[("crunch", {"log": log})]), Turn("Half way there."), "Done."], pace=None
    )
    async with on_screen(runtime, run) as seen:
        await seen.until_true(lambda: "tick" in lines(log))

        await seen.keys("question_mark")
        await seen.until("Ask on the side.")
        await seen.write("How far?")
        await seen.keys("enter")

        await seen.until("? How far?", "┊ Half way there.", "▶ Running")
        await run.cancel()


# -- the clock and the size


async def test_the_time_ticks_while_it_works_although_nothing_happens(runtime: Runtime, log: str) -> None:
    """D19"""
    run = await start(runtime, [Turn("Numbers.", calls=[("crunch", {"log": log})]), "never"])
    async with on_screen(runtime, run) as seen:
        await seen.until_true(lambda: "tick" in lines(log))
        times_seen = set[str]()

        def ticks() -> bool:
            times_seen.update(re.findall(r"Running  (\d\d:\d\d)", seen.text()))
            return len(times_seen) >= 3

        await seen.until_true(ticks, "the clock")
        await run.cancel()


async def test_scrolling_back_holds_the_text_and_end_follows_again(runtime: Runtime) -> None:
    run = await start(runtime, [SLOWLY])
    async with on_screen(runtime, run, size=(60, 15)) as seen:
        await seen.until_true(lambda: seen.text().count("one two") >= 4)

        await seen.keys("pageup")
        await seen.until("more lines (End follows)")
        await seen.keys("end")

        await seen.until_gone("more lines")
        await seen.until("▌")
        await run.cancel()


@pytest.mark.parametrize("size", [(200, 60), (80, 24), (60, 15), (40, 10)])
async def test_the_bar_is_at_the_bottom_at_every_size_and_whatever_else_is_open(
    runtime: Runtime, log: str, size: tuple[int, int]
) -> None:
    """D11 D17"""
    run = await start(runtime, [Turn(SLOWLY[:2000], calls=[("wire_money", {"log": log})]), "Paid."], pace=None)
    async with on_screen(runtime, run, size=size) as seen:
        await seen.until("y  Approve")
        assert _controls(seen.lines()) == ["Pause", "Redirect", "Cancel"]

        await seen.keys("r")
        await seen.write("only Q3")
        await seen.until("only Q3")

        assert _controls(seen.lines()) == ["Pause", "Redirect", "Cancel"]
        assert len(seen.lines()) == size[1]
        await run.cancel()


def _controls(shown: list[str]) -> list[str]:
    """The controls in the lower half of the screen, from top to bottom."""
    below = shown[len(shown) // 3 :]
    return [line.split()[1] for line in below if line.split()[:1] in (["p"], ["r"], ["c"])]


async def test_a_new_size_is_taken_up(runtime: Runtime) -> None:
    async with talking(runtime) as (run, seen):
        await seen.pilot.resize_terminal(60, 15)
        await seen.until_true(
            lambda: len(seen.lines()) == 15 and _controls(seen.lines()) == ["Pause", "Redirect", "Cancel"]
        )
        await seen.pilot.resize_terminal(120, 40)
        await seen.until_true(lambda: len(seen.lines()) == 40 and "STEPS" in seen.text())
        await run.cancel()


# -- a store that is away


class Flaky:
    """A journal that cannot be read while `is_away`."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.is_away = False

    def __getattr__(self, name: str) -> Any:
        async def ask(*arguments: Any, **options: Any) -> Any:
            self._check()
            return await getattr(self._journal, name)(*arguments, **options)

        return ask

    def now(self) -> float:
        return self._journal.now()

    def texts(self) -> AsyncIterator[frozenset[str] | None]:
        return self._journal.texts()

    async def follow(self, run: str, *, after: int = 0) -> AsyncIterator[Recorded]:
        async for record in self._journal.follow(run, after=after):
            self._check()
            yield record

    def _check(self) -> None:
        if self.is_away:
            raise StoreUnavailable("runs.db could not be used (disk I/O error).")


async def test_when_the_store_is_away_the_bar_says_so_and_recovers_by_itself(runtime: Runtime) -> None:
    run = await start(runtime, [SLOWLY])
    flaky = Flaky(runtime.journal)
    async with on_screen(runtime, run, journal=cast(Journal, flaky)) as seen:
        await seen.until("▶ Running", "one two")

        flaky.is_away = True
        await seen.until("✗ The store cannot be read", "Running when last seen")
        await run.pause()
        flaky.is_away = False

        await seen.until("‖ Paused")
        await seen.until_gone("The store cannot be read")
        await run.cancel()


async def test_a_mistake_in_what_feeds_the_screen_does_not_leave_old_news_looking_fresh(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D2"""
    run = await start(runtime, [SLOWLY])
    async with on_screen(runtime, run) as seen:
        await seen.until("▶ Running", "one two")

        monkeypatch.setattr("checkrein.control.feed.Viewer.absorb", lambda *_: 1 / 0)
        await run.pause()

        await seen.until("✗ The store cannot be read", "division by zero")
        await run.cancel()


# -- watching


async def test_a_run_of_another_process_is_followed_through_the_journal_and_left_alone(runtime: Runtime) -> None:
    run = await start(runtime, [SLOWLY])
    async with on_screen(runtime, run, owns=False) as seen:
        await seen.until("one two three", "q or Ctrl-C leaves, the run goes on")

        await seen.keys("q")
        await seen.until_true(lambda: seen.screen.return_value is Left.DETACHED)

    assert (await run.state()).status is Status.RUNNING
    await run.cancel()


async def test_the_text_is_whole_although_the_screen_began_to_listen_in_the_middle_of_it(runtime: Runtime) -> None:
    run = await start(runtime, ["zero " * 40 + SLOWLY], pace=20)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not await runtime.journal.chunks(run.id, next(iter((await run.state()).live), "")):
            await asyncio.sleep(0.02)
    async with on_screen(runtime, run) as seen:
        await seen.until("one two three")
        text = " ".join(line.partition("┊ ")[2] for line in seen.lines())
        assert text.split().count("zero") == 40
        await run.cancel()
    await until_status(run, Status.CANCELLED)
