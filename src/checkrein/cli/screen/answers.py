"""What the run wants from a person, and the keys that answer it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from checkrein.cli.screen.sheet import Paragraph, paragraph
from checkrein.cli.screen.words import ALARM, KEY, LOOKS, QUIET, STRONG, Part, one_line
from checkrein.cli.words import arguments
from checkrein.control.view import ApprovalView, DoubtView, EffectView, RunView, Shown
from checkrein.core.words import TERMINAL, Answer, EffectState, Status, Verb


class Reply(NamedTuple):
    """What a key does: a verb on a call (or, for an undo that is tried again, on an effect)."""

    verb: Verb
    call: str
    answer: Answer | None = None


class Question(NamedTuple):
    """One thing a person is asked, with the keys that answer it."""

    about: str
    """What it is about, so that a key that was meant for the one before is not taken for this one."""
    texts: tuple[Paragraph, ...]
    replies: Mapping[str, Reply]


_NEEDS: Final = LOOKS[Shown.NEEDS_YOU]
_KEYS: Final = {Answer.HAPPENED: "1", Answer.DID_NOT_HAPPEN: "2", Answer.UNDO: "3"}
_WORDS: Final = {Answer.HAPPENED: "It happened", Answer.DID_NOT_HAPPEN: "It did not", Answer.UNDO: "Undo it"}


def question(view: RunView) -> Question | None:
    """What to ask next; the run's own needs first, then what a stop left open."""
    is_open = view.status not in TERMINAL
    left = [] if is_open else [e for e in view.effects if e.now is EffectState.LEFT and e.can_undo]
    asked: list[ApprovalView | DoubtView | EffectView] = [*view.approvals, *view.doubts, *left]
    if is_open and (needs := [waiting for waiting in view.waiting if waiting.call is None]) and not asked:
        return _need(needs[0].kind, needs[0].what, needs[0].remedy, is_paused=view.status is Status.PAUSED)
    if not asked:
        return None
    return _ask(asked[0], len(asked))


def _ask(about: ApprovalView | DoubtView | EffectView, count: int) -> Question:
    if isinstance(about, ApprovalView):
        return _approval(about, count)
    return _doubt(about, count) if isinstance(about, DoubtView) else _left(about, count)


def _approval(asked: ApprovalView, count: int) -> Question:
    head = _head("May it call ", one_line(asked.name, 60), f"({arguments(asked.arguments, 300)})?", count)
    stays = "the agent waits" if asked.blocks else "the agent works on meanwhile"
    keys = paragraph(*_key("y", "Approve"), *_key("n", "Deny"), (stays, QUIET), longest=1)
    replies = {"y": Reply(Verb.APPROVE, asked.call), "n": Reply(Verb.DENY, asked.call)}
    return Question(f"approval {asked.call}", (head, keys), replies)


def _doubt(doubt: DoubtView, count: int) -> Question:
    head = _head("Did ", one_line(doubt.name, 60), f" happen? Nobody knows. ({arguments(doubt.arguments, 200)})", count)
    parts: list[Part] = []
    replies: dict[str, Reply] = {}
    for answer in doubt.answers:
        key = _KEYS[answer.answer]
        if answer.enabled:
            parts += _key(key, f"{_WORDS[answer.answer]}: {one_line(answer.consequence)}")
            replies[key] = Reply(Verb.RESOLVE, doubt.call, answer.answer)
        else:
            parts.append((f"{key} {_WORDS[answer.answer]}: {one_line(answer.consequence)}  ", QUIET))
    texts = [head, paragraph(*parts, longest=3)]
    if doubt.may_still_happen:
        texts.insert(1, paragraph(("Whoever began it may still be at it.", ALARM), longest=1))
    return Question(f"doubt {doubt.call}", tuple(texts), replies)


def _left(effect: EffectView, count: int) -> Question:
    why = f" ({one_line(effect.why, 200)})" if effect.why else ""
    head = _head("Not undone: ", one_line(effect.what, 60), why, count)
    keys = paragraph(*_key("u", "Try its undo again"), longest=1)
    return Question(f"left {effect.id}", (head, keys), {"u": Reply(Verb.RETRY_UNDO, effect.id)})


def _need(kind: str, what: str, remedy: str, *, is_paused: bool) -> Question:
    head = _head("", "", one_line(what, 400), 1)
    texts: Sequence[Paragraph] = [head]
    if remedy:
        texts = [
            head,
            paragraph((f"{one_line(remedy, 200)} ", ""), *(_key("p", "Resume") if is_paused else []), longest=2),
        ]
    return Question(f"need {kind} {what}", tuple(texts), {})


def _head(before: str, name: str, after: str, count: int) -> Paragraph:
    more = f"  ({count - 1} more after this)" if count > 1 else ""
    return paragraph(
        (f"{_NEEDS.shape} {_NEEDS.word}: ", _NEEDS.style),
        before,
        (name, STRONG),
        after,
        (more, QUIET),
        indent=2,
        longest=3,
    )


def _key(key: str, word: str) -> list[Part]:
    return [(f" {key} ", KEY), (f" {word}  ", "")]
