"""What a person sees of a run, told by stories of what happened to it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import msgspec
import pytest

from checkrein import Agent, Cost, Elapsed, Runtime, Tokens, Turns
from checkrein.control.view import CallView, RunView, Shown, ShownValue
from checkrein.control.viewer import Viewer, look, view_of
from checkrein.core.conditions import Condition, Effects, Repeats, ToolCalls, Usage
from checkrein.core.enums import Answer, EffectState, OnPause, Outcome, Verb
from checkrein.core.events import (
    CallChecked,
    Event,
    PlanPublished,
    ReasonAdded,
    StepFinished,
    StepStarted,
    WatcherFlagged,
)
from checkrein.journal.base import Chunk, Recorded
from checkrein.journal.encoding import encode
from checkrein.models import Turn
from tests.core.record import T0
from tests.core.story import Story, events_of, refusal_of
from tests.support.agent_tools import lines, make_draft
from tests.support.patience import PATIENCE_SECONDS
from tests.support.runs import StallingModel


def recorded(events: Iterable[Event]) -> list[Recorded]:
    return [Recorded("r-1", seq, event, encode(event), b"") for seq, event in enumerate(events, start=1)]


def seen(story: Story, *, texts: dict[str, str] | None = None) -> RunView:
    """The run as a person sees it; both ways to come to it must agree."""
    records = recorded(story.journal)
    view = view_of(story.state, records, story.effects, at=story.at, texts=texts)
    viewer = Viewer(records)
    for call, text in (texts or {}).items():
        viewer.hear(Chunk(call, 0, text))
    assert viewer.view(story.at) == view
    return view


def shown(view: RunView) -> list[tuple[str, str]]:
    return [(step.title, step.shown.value) for step in view.steps]


def call(view: RunView, name: str) -> CallView:
    (found,) = [one for one in view.calls if one.id == name]
    return found


def begin(story: Story, number: int, title: str) -> None:
    story.append(StepStarted(id=f"step {number} begins", at=story.at, step=number, title=title))


def end(story: Story, number: int) -> None:
    story.append(StepFinished(id=f"step {number} ends", at=story.at, step=number))


def planned() -> Story:
    """Fetch is done, Score is at work, Memo is to come."""
    story = Story()
    story.append(PlanPublished(id="plan", at=story.at, steps=("Fetch", "Score", "Memo")))
    begin(story, 1, "Fetch")
    events_of(story.tool("fetch", effect=True, step=1))
    events_of(story.finish("fetch"))
    end(story, 1)
    begin(story, 2, "Score")
    events_of(story.tool("score", effect=True, step=2))
    return story


# -- steps


def test_steps_are_told_apart() -> None:
    """D24"""
    assert shown(seen(planned())) == [("Fetch", "done"), ("Score", "running"), ("Memo", "queued")]


def test_it_says_whether_its_steps_are_those_of_a_plan() -> None:
    """D21: only a step of a plan can be rewritten."""
    story = Story()
    assert not seen(story).planned
    story.append(PlanPublished(id="plan", at=story.at, steps=("Fetch",)))
    assert seen(story).planned


def test_a_step_knows_its_calls_and_its_times() -> None:
    fetch, score, memo = seen(planned()).steps

    assert (fetch.calls, score.calls, memo.calls) == (("fetch",), ("score",), ())
    assert (fetch.started_at, fetch.finished_at) == (T0, T0)
    assert (score.finished_at, memo.started_at) == (None, None)


def test_the_step_at_work_is_paused_only_once_the_run_is() -> None:
    story = planned()

    story.pause()
    assert shown(seen(story))[1] == ("Score", "running")
    story.finish("score")
    story.drive()

    assert shown(seen(story)) == [("Fetch", "done"), ("Score", "paused"), ("Memo", "queued")]


def test_after_a_cancel_steps_are_undone_cancelled_or_never_started() -> None:
    """D5 D24"""
    story = planned()

    story.cancel()
    story.drive()

    view = seen(story)
    assert shown(view) == [("Fetch", "undone"), ("Score", "cancelled"), ("Memo", "not_started")]
    assert [(effect.what, effect.now.value) for effect in view.effects] == [("fetch", "undone"), ("score", "undone")]


def cancelled_after_memo(*tools: tuple[str, dict[str, Any]]) -> Story:
    """All three steps are done, the last one with these tools."""
    story = planned()
    end(story, 2)
    begin(story, 3, "Memo")
    events_of(story.finish("score"))
    for name, options in tools:
        events_of(story.tool(name, step=3, **options))
        events_of(story.finish(name))
    end(story, 3)
    story.cancel()
    story.drive()
    return story


def test_a_step_keeps_done_while_one_of_its_effects_stands() -> None:
    story = cancelled_after_memo(("memo", {"effect": True}), ("mail", {"effect": True, "undo": False}))

    assert shown(seen(story)) == [("Fetch", "undone"), ("Score", "undone"), ("Memo", "done")]


def test_a_step_whose_lock_was_released_keeps_done_because_its_other_work_stands() -> None:
    """D5 D24"""
    story = cancelled_after_memo(("lock", {"effect": True}), ("join", {}))

    assert shown(seen(story)) == [("Fetch", "undone"), ("Score", "undone"), ("Memo", "done")]


def test_the_step_at_work_fails_with_its_run() -> None:
    story = planned()
    story.finish("score", Outcome.FAILED, error="KeyError")
    story.fail()

    view = seen(story)
    assert shown(view) == [("Fetch", "done"), ("Score", "failed"), ("Memo", "not_started")]
    assert view.error == "KeyError"


def test_a_step_that_waits_for_a_person_says_so() -> None:
    story = planned()
    story.finish("score")
    events_of(story.request("mail"))

    view = seen(story)
    assert shown(view)[1] == ("Score", "needs_you")
    assert call(view, "mail").now == "waiting for approval"
    assert call(view, "mail").step == 2


def test_a_step_with_a_call_in_doubt_needs_a_person() -> None:
    story = planned()
    story.take_over()

    assert shown(seen(story))[1] == ("Score", "needs_you")


def test_a_new_plan_keeps_what_was_done_of_the_old_one() -> None:
    story = planned()
    story.append(PlanPublished(id="plan 2", at=story.at, steps=("Fetch", "Score", "By region", "Memo")))

    assert shown(seen(story)) == [("Fetch", "done"), ("Score", "running"), ("By region", "queued"), ("Memo", "queued")]


def test_without_a_plan_steps_are_made_of_the_tool_calls() -> None:
    story = Story()
    story.model("m1")
    story.finish("m1")
    story.did("fetch")
    events_of(story.tool("score", effect=True))

    assert shown(seen(story)) == [("fetch", "done"), ("score", "running")]
    assert not seen(story).planned
    story.cancel()
    story.drive()
    assert shown(seen(story)) == [("fetch", "undone"), ("score", "cancelled")]


def test_a_held_call_is_paused_with_its_run() -> None:
    story = Story()
    events_of(story.tool("score", on_pause=OnPause.HOLD))
    story.pause()
    story.drive()

    view = seen(story)
    assert shown(view) == [("score", "paused")]
    assert call(view, "score").now == "held"


# -- calls


def test_a_call_says_by_which_verb_it_was_stopped_and_what_it_is_now() -> None:
    story = Story()
    events_of(story.tool("score", arguments=msgspec.Raw(b'{"who": "all"}')))
    assert call(seen(story), "score").now == "running"

    story.cancel()
    assert call(seen(story), "score").now == "stopping"
    story.finish("score", Outcome.KILLED)

    view = call(seen(story), "score")
    assert (view.shown, view.now, view.stopped_by) == (Shown.CANCELLED, "killed", Verb.CANCEL)
    assert view.arguments == {"who": "all"}


def test_text_is_what_has_streamed_and_then_what_was_said() -> None:
    """D31"""
    story = Story()
    story.model("m1")
    assert call(seen(story, texts={"m1": "Eleven acc"}), "m1").text == "Eleven acc"

    told = {"message": {"type": "assistant", "text": "Eleven accounts.", "thinking": "hm"}, "model": "gpt"}
    story.finish("m1", result=msgspec.Raw(msgspec.json.encode(told)))

    view = call(seen(story), "m1")
    assert (view.text, view.thinking, view.shown) == ("Eleven accounts.", "hm", Shown.DONE)


def test_text_comes_in_any_order_of_chunks_and_records_and_each_attempt_has_its_own() -> None:
    story = Story()
    story.model("m1")
    first = recorded(story.journal)
    viewer = Viewer(first[:-1])
    viewer.hear(Chunk("m1", 0, "one "))  # before the record of its call
    viewer.absorb(first[-1])
    viewer.hear(Chunk("m1", 4, "two "))
    viewer.hear(Chunk("m1", 4, "two "))
    assert call(viewer.view(T0), "m1").text == "one two "

    story.pause()
    story.drive()
    story.resume()
    story.model("m1", attempt=2)
    viewer.hear(Chunk("m1#2", 0, "uno "))  # before the record of the second attempt
    for record in recorded(story.journal):
        viewer.absorb(record)
    viewer.hear(Chunk("m1", 8, "three"))  # a straggler of the first

    assert call(viewer.view(T0), "m1").text == "uno "


def test_a_model_call_that_a_pause_cut_off_is_paused_and_asked_again() -> None:
    story = Story()
    story.model("m1")
    story.pause()
    story.drive()

    assert call(seen(story), "m1").shown is Shown.PAUSED
    story.resume()
    assert call(seen(story), "m1").shown is Shown.QUEUED


# -- what a person is asked


def test_an_approval_is_shown_with_its_arguments_until_it_is_decided() -> None:
    """D37"""
    story = Story()
    events_of(story.request("mail"))

    (approval,) = seen(story).approvals
    assert (approval.call, approval.name, approval.blocks) == ("mail", "mail", True)
    story.deny("mail")

    view = seen(story)
    assert view.approvals == ()
    assert (call(view, "mail").shown, call(view, "mail").now) == (Shown.CANCELLED, "denied")


def asking(arguments: bytes, **given: Any) -> Story:
    story = Story()
    events_of(story.request("pay", arguments=msgspec.Raw(arguments), **given))
    return story


def texts(values: Iterable[ShownValue]) -> dict[str, str]:
    return {one.name: one.text for one in values}


def test_what_a_person_consents_to_is_text_of_what_is_recorded() -> None:
    story = asking(b'{"account":40817810099910004312,"sum":1e400}', what="40 € to “ann”", can_undo=True)

    (approval,) = seen(story).approvals

    assert texts(approval.shown) == {"account": "40817810099910004312", "sum": "1e400"}
    assert (approval.headline, approval.can_undo, approval.fingerprint) == ("40 € to “ann”", True, "hash of pay")
    assert texts(call(seen(story), "pay").given) == texts(approval.shown)


def test_a_question_of_an_older_release_has_the_name_of_its_tool_as_headline() -> None:
    (approval,) = seen(asking(b"{}")).approvals

    assert (approval.headline, approval.can_undo) == ("pay", False)


def test_of_many_questions_those_that_hold_the_run_up_come_first_and_the_rest_is_counted() -> None:
    story = Story()
    for number in range(30):
        events_of(story.request(f"post-{number}", blocks=False))
    events_of(story.request("pay"))

    view = seen(story)

    assert [one.call for one in view.approvals[:2]] == ["pay", "post-0"]
    assert (len(view.approvals), view.more_approvals) == (20, 11)


def test_long_arguments_are_not_part_of_the_view_and_are_there_for_who_looks_at_the_call() -> None:
    body = "x" * 5_000_000
    story = asking(msgspec.json.encode({"body": body, "to": "eve"}))

    view = seen(story)
    alone = Viewer(recorded(story.journal)).call("pay")

    assert len(msgspec.json.encode(view)) < 20_000
    (approval,) = view.approvals
    assert [(one.name, one.hidden) for one in approval.shown] == [("body", 5_000_000 - 2_000), ("to", 0)]
    assert alone is not None
    assert alone.arguments == {"body": body, "to": "eve"}
    assert [one.hidden for one in alone.given] == [0, 0]


def test_a_call_that_was_approved_with_other_arguments_says_by_whom_and_what_was_asked_for() -> None:
    story = asking(b'{"sum":100}')
    events_of(story.approve("pay", arguments=msgspec.Raw(b'{"sum":5}'), edited="hash of five", by="bob"))

    shown = call(seen(story), "pay")

    assert (shown.now, shown.approved_by, shown.edited_by) == ("approved", "bob", "bob")
    assert (texts(shown.given), texts(shown.asked_for)) == ({"sum": "5"}, {"sum": "100"})


def test_tools_that_were_approved_for_the_rest_of_the_run_are_named() -> None:
    story = asking(b"{}")

    events_of(story.approve("pay", always=True))
    assert seen(story).always == ("pay",)
    events_of(story.redirect())

    assert seen(story).always == ()


def test_a_call_that_began_unasked_says_who_has_approved_its_tool() -> None:
    story = asking(b"{}")
    events_of(story.approve("pay", always=True, by="bob"))

    events_of(story.tool("pay-2", name="pay", needs_approval=True))
    events_of(story.tool("look"))

    view = seen(story)
    assert (call(view, "pay-2").approved_by, call(view, "look").approved_by) == ("bob", "")


def test_a_question_that_a_redirect_withdrew_says_so() -> None:
    story = asking(b"{}")

    events_of(story.redirect())

    view = seen(story)
    assert (view.approvals, call(view, "pay").now) == ((), "withdrawn")


def test_what_came_of_a_call_is_text_of_what_is_recorded() -> None:
    story = Story()
    events_of(story.tool("count", arguments=msgspec.Raw(b'{"n":9007199254740993}')))
    events_of(story.finish("count", result=msgspec.Raw(b'{"total":9007199254740993}')))
    events_of(story.complete(result=msgspec.Raw(b"9007199254740993")))

    view = seen(story)

    counted = call(view, "count")
    assert texts(counted.given) == {"n": "9007199254740993"}
    assert counted.brought is not None
    assert counted.brought.text == '{"total":9007199254740993}'
    assert view.brought is not None
    assert view.brought.text == "9007199254740993"


def test_a_call_in_doubt_shows_what_it_was_given() -> None:
    story = Story()
    story.crashes_in("pay", arguments=msgspec.Raw(b'{"account":9007199254740993}'))

    (doubt,) = seen(story).doubts

    assert texts(doubt.shown) == {"account": "9007199254740993"}


def test_a_call_of_which_somebody_says_only_that_it_happened_has_no_result_and_says_so() -> None:
    story = Story()
    story.crashes_in("mail")

    events_of(story.resolve("mail", Answer.HAPPENED, by="bob"))

    after = call(seen(story), "mail")
    assert (after.now, after.brought, after.resolved_by) == ("happened, without a result", None, "bob")


def test_a_call_in_doubt_offers_its_three_answers_and_what_follows() -> None:
    story = Story()
    story.crashes_in("mail", undo=False)

    view = seen(story)
    (doubt,) = view.doubts
    assert (doubt.name, doubt.blocks, doubt.may_still_happen) == ("mail", True, False)
    assert [(answer.answer, answer.enabled) for answer in doubt.answers] == [
        (Answer.HAPPENED, True),
        (Answer.DID_NOT_HAPPEN, True),
        (Answer.UNDO, False),
    ]
    assert call(view, "mail").shown is Shown.NEEDS_YOU

    story.resolve("mail", Answer.HAPPENED, result=msgspec.Raw(b'"sent"'))
    after = call(seen(story), "mail")
    assert (after.shown, after.now, after.result) == (Shown.DONE, "happened", "sent")


def test_what_a_stop_left_unknown_can_still_be_resolved() -> None:
    story = Story()
    events_of(story.tool("mail", effect=True, undo=False))
    story.cancel()
    story.drive()

    view = seen(story)
    (doubt,) = view.doubts
    assert (doubt.name, doubt.blocks) == ("mail", False)
    assert [effect.now for effect in view.effects] == [EffectState.IN_DOUBT]


def test_a_verb_that_is_not_settled_says_what_it_waits_for() -> None:
    story = Story()
    events_of(story.tool("score"))
    story.pause()

    (settling,) = seen(story).settling
    assert (settling.verb, settling.by, settling.waiting_for) == (Verb.PAUSE, "ann", "score to finish")


# -- the rest of what is in view


def test_instructions_are_shown_with_their_diff_and_whether_they_arrived() -> None:
    """D23"""
    story = Story()
    story.plan("Fetch", "Score", finished=1)
    story.pause()
    story.drive()
    story.resume("only Q3")

    (waits,) = seen(story).instructions
    assert (waits.verb, waits.text, waits.delivered) == (Verb.RESUME, "only Q3", None)
    story.model("m1", delivers=True)

    (told,) = seen(story).instructions
    assert told.delivered is True
    assert "only Q3" in told.diff


def test_flags_receipts_controls_and_the_result_are_in_view() -> None:
    """D14 D18"""
    story = Story()
    story.append(WatcherFlagged(id="flag", at=story.at, watcher="Confession", what="recites", call="m1"))
    story.pause(reason="wait")
    story.drive()
    assert seen(story).controls[Verb.RESUME].enabled
    story.resume()
    story.drive()
    story.complete(result=msgspec.Raw(b'"three"'))

    view = seen(story)
    assert [flag.what for flag in view.flags] == ["recites"]
    assert [(receipt.verb, receipt.reason) for receipt in view.receipts] == [(Verb.PAUSE, "wait"), (Verb.RESUME, "")]
    assert (view.result, view.finished_at) == ("three", story.at)
    assert not view.controls[Verb.PAUSE].enabled


def test_elapsed_is_the_time_at_work() -> None:
    """D19"""
    story = Story()
    story.later(10)
    story.pause()
    story.drive()
    story.later(100)

    assert seen(story).elapsed_seconds == pytest.approx(10)


@pytest.mark.parametrize(
    ("cap", "words"),
    [
        (Turns(50), "turn 1 of 50"),
        (ToolCalls(3), "tool call 2 of 3"),
        (Tokens(50_000), "1,500 of 50,000 tokens"),
        (Cost(usd=1), "$0.12 of $1.00"),
        (Elapsed(minutes=30), "3:10 of 30:00"),
        (Elapsed(minutes=90), "3:10 of 1:30:00"),
        (Effects(20), "effect 0 of 20"),
        (Repeats(3), "repeat 1 of 3"),
    ],
)
def test_a_cap_says_how_much_is_used_of_what_is_allowed(cap: Condition, words: str) -> None:
    """D25"""
    story = Story(stop_when=cap)
    story.model("m1")
    story.finish("m1", usage=Usage(input_tokens=1000, output_tokens=500, cost_usd=0.12))
    story.did("score", "join", effect=False)
    story.later(190)

    (view,) = seen(story).caps
    assert view.words == words


def test_a_cost_that_is_not_known_says_so() -> None:
    story = Story(stop_when=Cost(usd=1))
    story.model("m1")
    story.finish("m1", usage=Usage(input_tokens=1, cost_usd=None))

    (cap,) = seen(story).caps
    assert (cap.used, cap.words) == (None, "unknown of $1.00")


def test_a_cap_that_a_resume_granted_again_is_twice_as_high() -> None:
    story = Story(stop_when=Turns(1))
    story.model("m1")
    story.finish("m1")
    story.trip(refusal_of(story.model("m2")))
    story.drive()
    assert [waiting.kind for waiting in seen(story).waiting] == ["cap"]
    story.resume()

    (cap,) = seen(story).caps
    assert cap.words == "turn 1 of 2"


def test_a_view_can_be_sent_as_json() -> None:
    story = planned()
    story.cancel()
    story.drive()

    sent: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(seen(story)))

    assert [step["shown"] for step in sent["steps"]] == ["undone", "cancelled", "not_started"]
    assert sent["controls"]["cancel"]["enabled"] is False


def test_before_the_first_record_there_is_nothing_to_see() -> None:
    with pytest.raises(ValueError, match="nothing was absorbed"):
        Viewer().view(T0)


@pytest.mark.anyio
async def test_looking_at_a_real_run_shows_the_text_of_the_attempt_that_streams(
    runtime: Runtime, tmp_path: Any
) -> None:
    """D31: after a pause in the middle of a stream, the text of the second attempt is not mixed with the first."""
    log = str(tmp_path / "log")
    said = "one two three four five six seven eight nine ten eleven twelve"
    lets = {2: asyncio.Event(), 3: asyncio.Event()}
    model = StallingModel([Turn(calls=[("make_draft", {"log": log})]), said], lets, after=4)
    run = await runtime.start(Agent("churn", model=model, tools=[make_draft]), "Count.")
    await _until_text(runtime, run.id, 2)
    await run.pause()
    assert lines(log) == ["draft"]
    await run.resume()
    view = await _until_text(runtime, run.id, 4)

    assert said.startswith(view.calls[-1].text)
    assert [step.title for step in view.steps] == ["make_draft"]
    await run.cancel()


async def _until_text(runtime: Runtime, run: str, words: int) -> RunView:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            view = await look(runtime.journal, run, at=0.0)
            speaks = len(view.calls) > 2 and view.calls[-1].now == "running"
            if speaks and len(view.calls[-1].text.split()) >= words:
                return view
            await asyncio.sleep(0.02)


def test_who_asked_for_what_and_when_is_in_view_beside_its_receipt() -> None:
    """D14"""
    story = planned()
    story.cancel(by="ada", reason="wrong path")
    story.drive()
    view = seen(story)

    (taken,) = view.verbs
    (receipt,) = view.receipts
    assert (taken.verb, taken.by, taken.reason) == (Verb.CANCEL, "ada", "wrong path")
    assert taken.seq == receipt.seq


def test_a_side_question_is_in_view() -> None:
    story = planned()
    story.ask("how far are you?")

    (taken,) = seen(story).verbs
    assert (taken.verb, taken.question) == (Verb.ASK, "how far are you?")


def test_a_reason_given_after_the_stop_is_in_view() -> None:
    """D14"""
    story = planned()
    story.append(ReasonAdded(id="why", at=story.at, reason="too expensive", by="ada", note="twice the budget"))

    (given,) = seen(story).reasons
    assert (given.reason, given.by, given.note, given.at) == ("too expensive", "ada", "twice the budget", story.at)


def test_what_the_check_of_a_tool_said_stands_beside_its_doubt() -> None:
    """P2: it helps whoever decides, and decides nothing."""
    story = Story()
    story.crashes_in("mail")
    assert seen(story).doubts[0].checked is None

    story.append(CallChecked(id="looked", at=story.at, call="mail", answer=Answer.HAPPENED, note="found it"))

    checked = seen(story).doubts[0].checked
    assert checked is not None
    assert (checked.answer, checked.note) == (Answer.HAPPENED, "found it")


def test_a_stream_that_a_program_read_to_its_end_keeps_its_text() -> None:
    story = planned()
    story.model("m1")
    story.finish("m1", result=msgspec.Raw(b'"all of it"'))

    assert call(seen(story), "m1").text == "all of it"
