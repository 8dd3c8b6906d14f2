"""Histories as bad as they come: few ids, so that they collide; odd names; arguments that are none."""

from __future__ import annotations

from hypothesis import strategies as st

from checkrein.core.events import Json
from checkrein.models import Assistant, Message, Note, ToolCall, ToolResult, User
from checkrein.models.history import INTERRUPTED_REPLY, SENTENCES, Fate

TEXTS = st.one_of(
    st.sampled_from(["", " ", "\n", "go on", "done. ", " lead", INTERRUPTED_REPLY, "naïve 統計"]), st.text(max_size=12)
)
IDS = st.sampled_from(["a", "b", "c", "a-2", "", "é", "x" * 39 + "y", "x" * 50, "call|1"])
NAMES = st.sampled_from(["send", "score_churn", "", "functions.send:0", "n" * 80, "ü"])
ARGUMENTS = st.sampled_from([b"{}", b'{"to": "x"}', b'{"a":[1,{"b":null}]}', b'"text"', b"[1]", b"", b'{"a":', b"\xff"])
RESULTS = st.one_of(TEXTS, st.sampled_from(sorted(SENTENCES.values())))

CALLS = st.builds(ToolCall, IDS, NAMES, ARGUMENTS.map(Json))

MESSAGES: st.SearchStrategy[Message] = st.one_of(
    st.builds(User, TEXTS),
    st.builds(Note, TEXTS),
    st.builds(
        Assistant, TEXTS, thinking=TEXTS, calls=st.lists(CALLS, max_size=3).map(tuple), interrupted=st.booleans()
    ),
    st.builds(ToolResult, IDS, NAMES, RESULTS, is_error=st.booleans(), interrupted=st.booleans()),
)
HISTORIES = st.lists(MESSAGES, max_size=14)
FATES = st.dictionaries(IDS, st.sampled_from(Fate))


@st.composite
def whole_histories(draw: st.DrawFn) -> list[Message]:
    """Histories that a provider accepts: nothing to repair."""
    words = st.sampled_from(["go on", "only Q3", "done"])
    messages: list[Message] = [User(draw(words))]
    for turn in range(draw(st.integers(0, 4))):
        calls = tuple(
            ToolCall(f"call_{turn}_{index}", "send", Json(b'{"to":"x"}')) for index in range(draw(st.integers(0, 3)))
        )
        messages.append(Assistant(draw(words), calls=calls))
        messages += [ToolResult(call.id, call.name, draw(words)) for call in calls]
        messages += draw(st.lists(st.one_of(st.builds(User, words), st.builds(Note, words)), max_size=2))
    return messages


@st.composite
def spoilt_histories(draw: st.DrawFn) -> list[Message]:
    """Whole histories in which a message or two was lost, doubled, moved or replaced: nearly right, or still right."""
    messages = draw(whole_histories())
    for _ in range(draw(st.integers(0, 2))):
        if messages:
            message = messages.pop(draw(st.integers(0, len(messages) - 1)))
            put_back = draw(st.sampled_from([[], [message], [message, message]])) or draw(
                st.lists(MESSAGES, max_size=1)
            )
            for one in put_back:
                messages.insert(draw(st.integers(0, len(messages))), one)
    return messages
