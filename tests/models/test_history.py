"""Repaired histories are accepted by strict providers, tell the truth, and lose nothing that a person said."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkrein.core.events import Json
from checkrein.errors import ModelRefusedRequest
from checkrein.models import Assistant, Fate, Message, Note, ToolCall, ToolResult, User, check, repair
from checkrein.models.history import BEGINS_HERE, INTERRUPTED_REPLY, NO_REASON, NOTHING_SAID, SENTENCES
from tests.models.strategies import FATES, HISTORIES, spoilt_histories, whole_histories
from tests.models.strict_provider import Refused, both_accept


def call(id: str = "c1", name: str = "send", arguments: bytes = b'{"to":"x"}') -> ToolCall:
    return ToolCall(id, name, Json(arguments))


def asks(*calls: ToolCall, text: str = "") -> Assistant:
    return Assistant(text, calls=calls)


GOAL = User("Which customers will churn?")


# -- for any history whatever


@given(HISTORIES, FATES)
def test_whatever_is_repaired_is_accepted(history, fates):
    repaired = repair(history, fates)

    check(repaired)
    both_accept(repaired)


@given(HISTORIES, FATES)
def test_to_repair_twice_is_to_repair_once(history, fates):
    once = repair(history, fates)

    assert repair(once, fates) == once
    assert repair(once) == once


@given(HISTORIES, FATES)
def test_nothing_that_a_person_said_is_lost_or_moved(history, fates):
    repaired = repair(history, fates)

    said = [message for message in history if isinstance(message, User) and message.text.strip()]
    assert [message for message in repaired if isinstance(message, User)] == said


@given(HISTORIES, FATES)
def test_nothing_that_the_model_said_or_asked_for_is_lost(history, fates):
    repaired = repair(history, fates)

    before = [message for message in history if isinstance(message, Assistant)]
    after = [message for message in repaired if isinstance(message, Assistant)]
    assert [m.text.rstrip() for m in after if m.text] == [m.text.rstrip() for m in before if m.text.strip()]
    assert sum(len(m.calls) for m in after) == sum(len(m.calls) for m in before)


@given(HISTORIES)
def test_no_result_is_made_up_but_in_the_words_for_it(history):
    recorded = {message.content.strip() for message in history if isinstance(message, ToolResult)}

    repaired = repair(history)

    shown = {message.content.strip() for message in repaired if isinstance(message, ToolResult)}
    assert shown <= recorded | {SENTENCES[Fate.INTERRUPTED], NO_REASON, ""}


@given(whole_histories())
def test_a_history_that_is_whole_comes_back_as_it_is(history):
    assert repair(history) == tuple(history)
    assert all(old is new for old, new in zip(history, repair(history), strict=True))


@given(st.one_of(HISTORIES, spoilt_histories()))
def test_the_check_refuses_exactly_what_one_of_the_providers_refuses(history):
    try:
        both_accept(history)
    except (Refused, ValueError):  # ValueError: it cannot even be written as JSON
        with pytest.raises(ModelRefusedRequest):
            check(history)
    else:
        check(history)


# -- missing results


@pytest.mark.parametrize("fate", Fate)
def test_a_missing_result_says_what_became_of_the_call(fate: Fate):
    repaired = repair([GOAL, asks(call())], {"c1": fate})

    [result] = [message for message in repaired if isinstance(message, ToolResult)]
    assert result.content == SENTENCES[fate]
    assert (result.call, result.name) == ("c1", "send")


def test_a_call_of_unknown_fate_counts_as_interrupted_unless_told_otherwise():
    history: list[Message] = [GOAL, asks(call())]

    assert repair(history)[-1] == ToolResult(
        "c1", "send", "Interrupted before it finished; it may have partly happened.", is_error=True, interrupted=True
    )
    assert repair(history, otherwise=Fate.NOT_BEGUN)[-1] == ToolResult(
        "c1", "send", "Not begun: the run was stopped first.", is_error=True, interrupted=True
    )


def test_a_stopped_tool_is_not_reported_as_declined_nor_a_declined_one_as_stopped():
    denied = repair([GOAL, asks(call())], {"c1": Fate.DENIED})[-1]

    assert isinstance(denied, ToolResult)
    assert denied.content == "A person declined this."
    assert not denied.interrupted
    assert not any("declin" in SENTENCES[fate] for fate in Fate if fate is not Fate.DENIED)


def test_results_stand_right_after_their_calls_in_the_order_of_the_calls():
    repaired = repair(
        [
            GOAL,
            asks(call("c1"), call("c2"), call("c3")),
            ToolResult("c3", "send", "three"),
            User("only Q3"),
            ToolResult("c1", "send", "one"),
        ]
    )

    assert [getattr(message, "call", None) for message in repaired] == [None, None, "c1", "c2", "c3", None]
    assert [message.content for message in repaired if isinstance(message, ToolResult)] == [
        "one",
        SENTENCES[Fate.INTERRUPTED],
        "three",
    ]
    assert repaired[-1] == User("only Q3")


# -- recorded results


def test_a_recorded_result_is_not_replaced_by_a_fate():
    history: list[Message] = [GOAL, asks(call()), ToolResult("c1", "send", "sent")]

    assert repair(history, {"c1": Fate.IN_DOUBT}) == tuple(history)


def test_a_result_whose_effect_was_undone_later_stays_and_says_so():
    history: list[Message] = [GOAL, asks(call()), ToolResult("c1", "send", "Draft 7 made.")]

    repaired = repair(history, {"c1": Fate.UNDONE})

    assert repaired[-1] == ToolResult("c1", "send", "Draft 7 made.\n\nThis was done and then undone.")


def test_a_made_up_result_gives_way_to_a_better_known_fate():
    in_doubt = repair([GOAL, asks(call())], {"c1": Fate.IN_DOUBT})

    resolved = repair(in_doubt, {"c1": Fate.UNDONE})

    assert resolved[-1] == ToolResult("c1", "send", "This was done and then undone.")


def test_the_first_real_result_counts_and_a_real_one_outranks_a_made_up_one():
    made_up = ToolResult("c1", "send", SENTENCES[Fate.IN_DOUBT], is_error=True, interrupted=True)
    real, second = ToolResult("c1", "send", "sent"), ToolResult("c1", "send", "sent again")

    assert repair([GOAL, asks(call()), made_up, real, second]) == (GOAL, asks(call()), real)


def test_a_result_without_a_call_is_left_out():
    assert repair([ToolResult("c9", "send", "sent"), GOAL, ToolResult("c1", "send", "sent")]) == (GOAL,)


def test_a_result_does_not_answer_a_call_that_is_made_later():
    repaired = repair([GOAL, ToolResult("c1", "send", "stale"), asks(call())])

    assert repaired[-1] == ToolResult("c1", "send", SENTENCES[Fate.INTERRUPTED], is_error=True, interrupted=True)


def test_a_failed_result_without_words_gets_some():
    repaired = repair([GOAL, asks(call()), ToolResult("c1", "send", " ", is_error=True)])

    assert repaired[-1] == ToolResult("c1", "send", NO_REASON, is_error=True)


# -- ids, names and arguments


def test_an_id_that_comes_again_is_changed_together_with_its_result():
    history: list[Message] = [
        GOAL,
        asks(call("call_0")),
        ToolResult("call_0", "send", "first"),
        asks(call("call_0")),
        ToolResult("call_0", "send", "second"),
    ]

    repaired = repair(history)

    assert repaired[:3] == tuple(history[:3])
    assert repaired[3:] == (asks(call("call_0-2")), ToolResult("call_0-2", "send", "second"))


def test_a_result_answers_the_latest_call_of_its_id():
    repaired = repair([GOAL, asks(call("a")), asks(call("a")), ToolResult("a", "send", "sent")])

    assert [message.content for message in repaired if isinstance(message, ToolResult)] == [
        SENTENCES[Fate.INTERRUPTED],
        "sent",
    ]


def test_a_new_id_is_never_one_that_has_a_fate_of_its_own():
    fates = {"a-2": Fate.UNDONE}

    repaired = repair([GOAL, asks(call("a"), call("a"))], fates)

    assert repaired[1] == asks(call("a"), call("a-3"))
    assert repair(repaired, fates) == repaired


def test_two_calls_of_one_reply_with_the_same_id_get_their_results_in_order():
    repaired = repair([GOAL, asks(call("a"), call("a")), ToolResult("a", "send", "1"), ToolResult("a", "send", "2")])

    assert repaired[2:] == (ToolResult("a", "send", "1"), ToolResult("a-2", "send", "2"))


@pytest.mark.parametrize("odd", ["", "call|fc_1", "x" * 41, "é"])
def test_an_id_that_a_provider_would_refuse_is_changed_together_with_its_result(odd: str):
    repaired = repair([GOAL, asks(call(odd)), ToolResult(odd, "send", "sent")])

    both_accept(repaired)
    assert isinstance(repaired[-1], ToolResult)
    assert repaired[-1].content == "sent"


def test_a_name_that_no_tool_can_have_becomes_one():
    repaired = repair([GOAL, asks(call(name="functions.send:0"))])

    assert repaired[1] == asks(call(name="functions_send_0"))


@pytest.mark.parametrize(
    ("written", "sent"),
    [
        (b'"{oops"', b'{"invalid_arguments":"{oops"}'),
        (b"[1]", b'{"invalid_arguments":[1]}'),
        (b"{oops", b'{"invalid_arguments":"{oops"}'),
        (b"", b'{"invalid_arguments":""}'),
    ],
)
def test_arguments_that_are_no_object_are_wrapped_in_one(written: bytes, sent: bytes):
    assert repair([GOAL, asks(call(arguments=written))])[1] == asks(call(arguments=sent))


# -- replies


def test_an_interrupted_reply_keeps_its_text_and_is_marked():
    partial = Assistant("The first three customers are", interrupted=True)

    assert repair([GOAL, partial, User("only Q3")]) == (GOAL, partial, Note(INTERRUPTED_REPLY), User("only Q3"))


def test_the_mark_of_an_interrupted_reply_stands_after_the_results_of_its_calls():
    partial = Assistant("I will", calls=(call(),), interrupted=True)

    repaired = repair([GOAL, partial], otherwise=Fate.NOT_BEGUN)

    assert [type(message) for message in repaired] == [User, Assistant, ToolResult, Note]


def test_a_reply_that_only_thought_is_left_out():
    assert repair([GOAL, Assistant("", thinking="hm", interrupted=True)]) == (GOAL,)


def test_a_history_that_begins_in_the_middle_says_so():
    assert repair([Assistant("Done.")]) == (Note(BEGINS_HERE), Assistant("Done."))
    assert repair([]) == (Note(NOTHING_SAID),)


def test_only_a_reply_at_the_very_end_is_trimmed():
    assert repair([GOAL, Assistant("Done. \n")])[-1] == Assistant("Done.")
    assert repair([GOAL, Assistant("Done. \n"), User("And?")])[1] == Assistant("Done. \n")


def test_user_messages_in_a_row_are_left_alone():
    history = (GOAL, Note("Earlier work was undone: draft discarded."), User("only Q3"))

    assert repair(history) == history


# -- what is refused

REFUSED: list[tuple[str, list[Message]]] = [
    ("no messages", []),
    ("must be the user's", [Assistant("Hello.")]),
    ("must be the user's", [ToolResult("c1", "send", "sent")]),
    ("it is empty", [User(" ")]),
    ("it is empty", [GOAL, Assistant("", thinking="hm")]),
    ("no result right after them: c1 of send", [GOAL, asks(call())]),
    ("no result right after them: c1 of send", [GOAL, asks(call()), User("?"), ToolResult("c1", "send", "")]),
    ("no result right after them: c2 of send", [GOAL, asks(call(), call("c2")), ToolResult("c1", "send", "")]),
    ("answers no call", [GOAL, ToolResult("c1", "send", "sent")]),
    ("answers no call", [GOAL, asks(call()), ToolResult("c1", "send", ""), ToolResult("c1", "send", "")]),
    ("used before", [GOAL, asks(call(), call())]),
    ("used before", [GOAL, asks(call()), ToolResult("c1", "send", ""), asks(call())]),
    ("not plain", [GOAL, asks(call("call|1"))]),
    ("name of a tool", [GOAL, asks(call(name="a.b"))]),
    ("not an object", [GOAL, asks(call(arguments=b"[1]"))]),
    ("says nothing", [GOAL, asks(call()), ToolResult("c1", "send", "", is_error=True)]),
    ("nothing but white space", [GOAL, asks(call()), ToolResult("c1", "send", " ")]),
    ("ends with white space", [GOAL, Assistant("Done. ")]),
]


@pytest.mark.parametrize(("why", "history"), REFUSED)
def test_the_check_refuses_what_a_provider_would(why: str, history: list[Message]):
    with pytest.raises(ModelRefusedRequest, match=why) as caught:
        check(history)

    assert caught.value.position is not None
    assert caught.value.position <= len(history)
    assert caught.value.remedy


@pytest.mark.parametrize(("why", "history"), REFUSED)
def test_the_strict_providers_find_the_same_mistakes(why: str, history: list[Message]):
    with pytest.raises(Refused):
        both_accept(history)


def _forget_the_results(history: tuple[Message, ...]) -> list[Message]:
    return [message for message in history if not isinstance(message, ToolResult)]


def _forget_the_calls(history: tuple[Message, ...]) -> list[Message]:
    return [Assistant("x") if isinstance(message, Assistant) else message for message in history]


def _double_the_results(history: tuple[Message, ...]) -> list[Message]:
    return [m for message in history for m in ([message] * 2 if isinstance(message, ToolResult) else [message])]


@pytest.mark.parametrize("spoil", [_forget_the_results, _forget_the_calls, _double_the_results])
def test_a_spoilt_history_is_refused_by_the_check_and_by_the_providers(
    spoil: Callable[[tuple[Message, ...]], list[Message]],
):
    whole = (GOAL, asks(call(), call("c2")), ToolResult("c1", "send", "1"), ToolResult("c2", "send", "2"))
    both_accept(whole)

    with pytest.raises(ModelRefusedRequest):
        check(spoil(whole))
    with pytest.raises(Refused):
        both_accept(spoil(whole))
