"""The buttons: each names its consequence, in words that come from the state and from nothing else."""

from __future__ import annotations

import pytest

from checkrein.core.conditions import Turns
from checkrein.core.consequences import VerbControl, controls
from checkrein.core.effects import Effect
from checkrein.core.enums import OnPause, Outcome, Status, Verb
from checkrein.core.events import HELD_PREFIX, StopDelayed, VerbJoined
from checkrein.core.evolve import fold
from checkrein.core.orders import Abort, orders
from checkrein.core.transitions import VERBS
from checkrein.core.wording import quoted
from tests.core.story import Story, accepted, events_of, refusal_of
from tests.core.test_transitions import run_in

BUTTONS = [Verb.PAUSE, Verb.RESUME, Verb.REDIRECT, Verb.CANCEL, Verb.ASK]


@pytest.mark.parametrize("status", Status)
def test_a_button_is_enabled_exactly_when_its_verb_would_begin_something_new(status: Status) -> None:
    """D11 D17 D27: every control is there in every status, and none promises what would be refused."""
    story = run_in(status)

    shown = controls(story.state, story.effects, held=story.held)

    assert list(shown) == BUTTONS
    assert all(control.consequence for control in shown.values())
    for verb, control in shown.items():
        move = VERBS.get((status, verb))
        assert control.enabled is (move is not None and not move.joins)


# -- pause


def test_pause_says_what_it_stops_and_that_nothing_is_lost() -> None:
    """D18 D20"""
    story = Story()
    assert story.consequence(Verb.PAUSE) == "holds here; nothing is lost"

    events_of(story.model("m1"))

    assert story.consequence(Verb.PAUSE) == "stops the model here; nothing is lost"


def test_a_run_that_is_paused_with_its_parent_can_be_paused_for_itself() -> None:
    """D18: the button says what that would change."""
    story = Story()
    events_of(story.pause(id=f"{HELD_PREFIX}1", by="ann"))
    story.drive()

    shown = controls(story.state, story.effects)[Verb.PAUSE]

    assert (shown.enabled, shown.consequence) == (True, "stays paused when its parent goes on")
    accepted(story.pause(by="bob"))
    assert not controls(story.state, story.effects)[Verb.PAUSE].enabled


def test_pause_names_the_tools_it_waits_for() -> None:
    """D18"""
    story = Story()
    events_of(story.tool("score_churn"))

    assert story.consequence(Verb.PAUSE) == "waits for score_churn, then holds"


def test_pause_says_what_becomes_of_each_tool() -> None:
    story = Story()
    events_of(story.tool("score_churn"))
    events_of(story.tool("train", on_pause=OnPause.HOLD))
    events_of(story.tool("look", on_pause=OnPause.ABORT, idempotent=True))

    assert story.consequence(Verb.PAUSE) == (
        "waits for score_churn, then holds; freezes train where it is; stops look, which resume does again"
    )


def test_while_it_pauses_the_button_names_what_it_waits_for() -> None:
    story = Story()
    events_of(story.tool("score_churn"))

    events_of(story.pause())
    assert story.consequence(Verb.PAUSE) == "waits for score_churn to finish"
    events_of(story.finish("score_churn"))
    story.drive()

    assert story.consequence(Verb.PAUSE) == "it is paused"


# -- resume


def test_resume_goes_on_exactly_there() -> None:
    """D18 D23"""
    story = Story()
    assert story.consequence(Verb.RESUME) == "it is running"

    events_of(story.pause())

    assert story.consequence(Verb.RESUME) == "goes on exactly there"


def test_after_a_cap_the_buttons_say_that_it_is_granted_again() -> None:
    """D25: no cap is lifted without saying so."""
    story = Story(stop_when=Turns(50))
    for turn in range(50):
        events_of(story.model(f"m{turn}"))
        events_of(story.finish(f"m{turn}"))
    events_of(story.trip(refusal_of(story.model("m50"))))
    story.drive()

    assert story.consequence(Verb.RESUME) == "goes on, and grants Turns(50) again"
    assert story.consequence(Verb.REDIRECT) == "keeps all finished work, grants Turns(50) again"


# -- redirect


def test_redirect_says_what_it_stops_and_what_it_keeps() -> None:
    """D18 D21"""
    story = Story()
    story.plan("Fetch customer list", "Join against MRR table", "Score churn risk", finished=2)
    events_of(story.tool("score_churn"))

    assert story.consequence(Verb.REDIRECT) == "stops score_churn, keeps 2 finished steps"


def test_a_model_is_called_the_model() -> None:
    story = Story()
    story.model("gpt-9")

    assert story.consequence(Verb.REDIRECT) == "stops the model, keeps all finished work"


def test_redirect_without_steps_keeps_all_finished_work() -> None:
    story = Story()
    assert story.consequence(Verb.REDIRECT) == "keeps all finished work"

    story.plan("Fetch customer list", "Join against MRR table", finished=1)

    assert story.consequence(Verb.REDIRECT) == "keeps 1 finished step"


def test_the_composer_opens_with_the_next_step() -> None:
    """D21"""
    story = Story()
    assert story.state.next_step == ""

    story.plan("Fetch customer list", "Join against MRR table", finished=1)

    assert story.state.next_step == "Join against MRR table"


# -- cancel


def test_cancel_names_what_it_undoes_and_where_partial_work_goes() -> None:
    """D18 D22 D33"""
    story = Story()
    story.did("draft", "lock")

    assert story.consequence(Verb.CANCEL) == "stops now · takes back draft and lock · keeps the text so far"


def test_cancel_says_plainly_when_there_is_nothing_to_undo() -> None:
    story = Story()

    assert story.consequence(Verb.CANCEL) == "stops now · keeps the text so far"


def test_cancel_names_what_it_cannot_undo_and_what_is_in_doubt() -> None:
    """D34"""
    story = Story()
    story.did("draft")
    story.did("sent", undo=False)
    story.crashes_in("charge")

    assert story.consequence(Verb.CANCEL) == (
        "stops now · takes back draft · charge may have happened · cannot take back sent · keeps the text so far"
    )


def test_cancel_names_at_most_three_effects_and_each_once() -> None:
    story = Story()
    story.did("a", "b", "c", "d", "e")

    assert "takes back a, b, c and 2 more" in story.consequence(Verb.CANCEL)


def test_while_it_cancels_the_button_names_what_it_waits_for() -> None:
    story = Story()
    story.did("draft")
    events_of(story.tool("score_churn"))
    events_of(story.cancel())

    assert story.consequence(Verb.CANCEL) == "waits for score_churn to stop"
    events_of(story.finish("score_churn", Outcome.KILLED))

    assert story.consequence(Verb.CANCEL) == "waits for the undo of draft"


# -- ask, and the end


def test_ask_says_whether_the_run_goes_on() -> None:
    story = Story()
    assert story.consequence(Verb.ASK) == "answers from a copy of the context, the run goes on"

    events_of(story.pause())
    story.drive()

    assert story.consequence(Verb.ASK) == "answers from a copy of the context, the run stays paused"


def test_after_the_end_every_button_says_how_it_ended() -> None:
    """D24"""
    story = Story()
    events_of(story.complete())

    said = controls(story.state)
    assert said.pop(Verb.ASK).consequence == "answers from a copy of the context, the run stays completed"
    assert {control.consequence for control in said.values()} == {"it has completed"}


def test_what_a_shutdown_paused_can_be_kept_paused_by_a_person() -> None:
    """D18"""
    story = Story()
    events_of(story.pause(by="checkrein", resumes_itself=True))
    story.drive()

    pause = controls(story.state)[Verb.PAUSE]

    assert pause == VerbControl(True, "stays paused instead of going on by itself")


# -- words that are not ours


def test_a_value_that_a_model_chose_is_quoted_and_short_on_a_button() -> None:
    story = Story()
    what = f"the draft to {quoted('x, deletes the customer database. The run has ENDED, nothing is running any more')}"
    opens = Effect(id="draft", what=what, undo="undo of draft")
    events_of(story.tool("draft", opens=opens))
    events_of(story.finish("draft"))

    assert story.consequence(Verb.CANCEL) == (
        "stops now · takes back the draft to “x, deletes the customer…” · keeps the text so far"
    )


def test_a_cancel_that_waits_for_an_atomic_section_can_be_asked_for_again() -> None:
    story = Story()
    events_of(story.tool("wire"))
    cancel = accepted(story.cancel())
    delayed = StopDelayed(id="w", at=story.at, call="wire", what="a shielded section", seconds=25.0)
    waiting = fold(story.state, [delayed])

    asked = controls(waiting, story.effects)[Verb.CANCEL]
    joined = fold(waiting, [VerbJoined(id="again", at=story.at, verb=Verb.CANCEL, accepted=cancel, by="ann")])

    assert (asked.enabled, asked.consequence) == (True, "waits no longer for wire")
    assert [order for order in orders(waiting) if isinstance(order, Abort)] == [Abort("wire", Verb.CANCEL)]
    assert [order for order in orders(joined) if isinstance(order, Abort)] == [Abort("wire", Verb.CANCEL, hurry=True)]
    assert not controls(joined, story.effects)[Verb.CANCEL].enabled
