"""The demo's model decides from the request alone: what was done, what was undone, what a person said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from checkrein.control.worker_roster import card_of
from checkrein.demo import GOALS, agent
from checkrein.demo.model import Wish, hear, think
from checkrein.demo.tools import TOOLS
from checkrein.models import Assistant, Message, Note, Request, ToolCall, ToolResult, Turn, User
from checkrein.models.history import SENTENCES, Fate, repair, result_of
from checkrein.models.messages import ToolSpec, as_json

SPECS = tuple(ToolSpec(name, "", as_json({})) for name in [*(tool.name for tool in TOOLS), "plan"])
TOP = [{"id": "C-001", "name": "Amber Foods", "country": "Germany", "mrr": 100, "risk": 0.9, "why": "revenue -30%"}]
RESULTS: dict[str, Any] = {
    "fetch_customers": {"customers": 240, "countries": {"Germany": 60}},
    "take_lock": "r/c2",
    "join_mrr": {"months": 18, "first": 1000, "last": 900},
    "create_draft": "draft-1",
    "score_churn": {"scored": 240, "at_risk": 1, "mrr_at_risk": 100, "top": TOP},
    "write_memo": "memo.md",
    "send_email": "sent",
    "unlock": "released",
}
ORDER = ["fetch_customers", "take_lock", "join_mrr", "create_draft", "score_churn", "write_memo", "unlock"]


def ask(messages: list[Message], *, tools: bool = True) -> Turn:
    return think(Request("", repair(messages), SPECS if tools else ()), Path("data"), 0.0)


def used(turn: Turn) -> tuple[str, dict[str, Any]] | None:
    """The tool that a turn asks for, besides the plan, and its arguments."""
    named = [call for call in turn.calls if not isinstance(call, ToolCall) and call[0] != "plan"]
    return (named[0][0], dict(named[0][1])) if named else None


def answered(messages: list[Message], turn: Turn, *, fate: Fate | None = None, error: str = "") -> list[Message]:
    """The history after a turn and the results of its tools."""
    place = sum(isinstance(message, Assistant) for message in messages)
    calls = []
    for index, asked in enumerate(turn.calls):
        assert not isinstance(asked, ToolCall)
        calls.append(ToolCall(f"call_{place}_{index}", asked[0], as_json(asked[1])))
    results: list[Message] = []
    for call in calls:
        if call.name == "plan":
            results.append(ToolResult(call.id, call.name, "At step 2 of 4."))
        elif fate is not None:
            results.append(result_of(call, fate))
        elif error:
            results.append(ToolResult(call.id, call.name, error, is_error=True))
        else:
            value = RESULTS[call.name]
            content = value if isinstance(value, str) else msgspec.json.encode(value).decode()
            results.append(ToolResult(call.id, call.name, content))
    return [*messages, Assistant(turn.text, calls=tuple(calls)), *results]


def after(*names: str, goal: str = "Who will churn?") -> list[Message]:
    """The history once these tools have been used, in the order in which the model asks for them."""
    messages: list[Message] = [User(goal)]
    for name in names:
        turn = ask(messages)
        assert used(turn) is not None
        assert used(turn)[0] == name  # type: ignore[index]
        messages = answered(messages, turn)
    return messages


def test_it_goes_through_the_whole_plan_and_then_answers() -> None:
    final = ask(after(*ORDER))

    assert final.calls == ()
    assert "Amber Foods" in final.text
    assert "Of 240 customers, 1 look" in final.text


def test_it_announces_each_step_of_the_plan_once() -> None:
    messages = after(*ORDER)
    steps = [
        msgspec.json.decode(bytes(call.arguments))["step"]
        for message in messages
        if isinstance(message, Assistant)
        for call in message.calls
        if call.name == "plan"
    ]

    assert steps == [2, 3, 4]


def test_without_a_plan_tool_it_does_not_ask_for_one() -> None:
    turn = think(Request("", tuple(after("fetch_customers")), SPECS[:-1]), Path("data"), 0.0)

    assert [call[0] for call in turn.calls] == ["take_lock"]  # type: ignore[index]


@pytest.mark.parametrize(
    ("instruction", "scope", "words"),
    [
        ("only customers in Germany", {"country": "Germany"}, "customers in Germany"),
        ("only Q3", {"quarter": "Q3"}, "contract ends in Q3"),
        ("just q4 in france, please", {"country": "France", "quarter": "Q4"}, "customers in France"),
    ],
)
def test_a_redirect_is_heeded_and_finished_work_is_kept(instruction: str, scope: dict[str, str], words: str) -> None:
    """D21 D38"""
    messages = after("fetch_customers", "take_lock", "join_mrr", "create_draft")
    messages = answered(messages, ask(messages), fate=Fate.INTERRUPTED)

    turn = ask([*messages, User(instruction)])

    name, arguments = used(turn) or ("", {})
    assert name == "score_churn"
    assert {key: arguments[key] for key in ("country", "quarter") if key in arguments} == scope
    assert words in turn.text


def test_scores_of_other_customers_do_not_count() -> None:
    messages = [*after(*ORDER[:5]), User("only Germany")]

    assert (used(ask(messages)) or [""])[0] == "score_churn"


def test_an_instruction_that_it_does_not_understand_is_repeated_and_not_obeyed() -> None:
    messages = [*after(*ORDER[:3]), User("write it as a poem")]

    turn = ask(messages)

    assert "“write it as a poem”" in turn.text
    assert "understand only" in turn.text
    assert (used(turn) or [""])[0] == "create_draft"


def test_summarise_and_stop_releases_the_lock_and_ends() -> None:
    """D32"""
    messages: list[Message] = [*after(*ORDER[:4]), User("summarise and stop")]

    turn = ask(messages)
    final = ask(answered(messages, turn))

    assert (used(turn) or [""])[0] == "unlock"
    assert final.calls == ()
    assert "fetched 240 customers" in final.text
    assert "not yet scored" in final.text


def test_what_was_undone_is_done_again_in_the_next_run_and_the_rest_is_not() -> None:
    """D6"""
    messages = after(*ORDER[:4])
    messages = answered(messages, ask(messages), fate=Fate.INTERRUPTED)
    undone = {
        call.id: Fate.UNDONE
        for message in messages
        if isinstance(message, Assistant)
        for call in message.calls
        if call.name in ("take_lock", "create_draft")
    }
    stopped = list(repair([*messages, Note("A person stopped this run before it was done.")], undone))

    asked: list[str] = []
    messages = [*stopped, User("Continue from here.")]
    first = ask(messages)
    while (use := used(turn := ask(messages))) is not None:
        asked.append(use[0])
        messages = answered(messages, turn)

    assert "undone (create_draft, take_lock)" in first.text
    assert asked == ["take_lock", "create_draft", "score_churn", "write_memo", "unlock"]


def test_an_e_mail_is_sent_only_when_asked_for_and_only_once() -> None:
    messages = after(*ORDER)
    messages.append(Assistant(ask(messages).text))
    messages.append(User("Send it."))

    turn = ask(messages)
    after_it = ask(answered(messages, turn))

    assert used(turn) == (
        "send_email",
        {
            "data": "data",
            "to": "account-team@example.com",
            "draft": "draft-1",
            "text": "Of 240 customers, 1 look likely to leave next quarter; they pay 100 € a month. "
            "Talk first to Amber Foods.",
        },
    )
    assert after_it.calls == ()
    assert "is sent" in after_it.text


def test_an_e_mail_that_a_person_declined_is_not_tried_again() -> None:
    messages: list[Message] = [*after(*ORDER), User("send it")]

    final = ask(answered(messages, ask(messages), error="not approved"))

    assert final.calls == ()
    assert "You declined the e-mail" in final.text


def test_a_tool_that_fails_ends_the_run_with_the_reason_and_the_lock_released() -> None:
    messages = after(*ORDER[:4])
    messages = answered(messages, ask(messages), error="OSError: the disk is full")

    turn = ask(messages)
    final = ask(answered(messages, turn))
    again = ask([*answered(messages, turn), Assistant(final.text), User("go on")])

    assert (used(turn) or [""])[0] == "unlock"
    assert "score_churn did not work (OSError: the disk is full)" in final.text
    assert (used(again) or [""])[0] == "take_lock"


def test_a_tool_that_a_person_stops_again_and_again_is_given_up() -> None:
    messages = after(*ORDER[:4])
    messages = answered(messages, ask(messages), fate=Fate.INTERRUPTED)
    assert (used(ask(messages)) or [""])[0] == "score_churn"

    messages = answered(messages, ask(messages), fate=Fate.INTERRUPTED)

    assert (used(ask(messages)) or [""])[0] == "unlock"


@pytest.mark.parametrize("done", [0, 1, 4, 5, 7])
def test_a_side_question_is_answered_from_what_is_known_and_asks_for_no_tool(done: int) -> None:
    answer = ask([*after(*ORDER[:done]), User("How far are you?")], tools=False)

    assert answer.calls == ()
    assert ("Amber Foods" in answer.text) is (done >= 5)
    assert ("not yet scored" in answer.text) is (done < 5)


def test_the_sentence_by_which_it_knows_undone_work_is_that_of_the_history() -> None:
    assert SENTENCES[Fate.UNDONE] == "This was done and then undone."


def test_each_goal_that_the_page_offers_asks_for_something_else_that_the_model_understands() -> None:
    wishes = [hear(goal, Wish()) for goal in GOALS]

    assert wishes == [Wish(), Wish(country="France", mail=True), Wish(quarter="Q3")]


def test_the_page_is_given_the_goals_to_click(tmp_path: Path) -> None:
    assert card_of(agent(tmp_path, pace=0)).goals == GOALS
