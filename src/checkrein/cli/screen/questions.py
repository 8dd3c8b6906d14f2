"""What the run wants from a person, and the keys that answer it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from checkrein.cli.screen.bar import TALL, label
from checkrein.cli.screen.sheet import Paragraph, paragraph
from checkrein.cli.screen.style import ALARM, KEY, LOOKS, QUIET, STRONG, Part, one_line
from checkrein.cli.wording import Value, values_shown
from checkrein.control.view import ApprovalView, DoubtView, EffectView, RunView, Shown
from checkrein.core.enums import TERMINAL, Answer, EffectState, Status, Verb
from checkrein.core.escape import printable
from checkrein.core.wording import ANSWERS


class Reply(NamedTuple):
    """What a key does: a verb on a call (or, for an undo that is tried again, on an effect)."""

    verb: Verb
    call: str
    answer: Answer | None = None
    fingerprint: str = ""
    """Of what was shown: consent to anything else is refused."""


class Question(NamedTuple):
    """One thing a person is asked, with the keys that answer it."""

    about: str
    """What it is about, so that a key that was meant for the one before is not taken for this one."""
    texts: tuple[Paragraph, ...]
    replies: Mapping[str, Reply]
    call: str = ""
    """The call whose arguments are shown, and of which a key shows the rest."""


_GUTTER: Final = "┊ "
"""Before every line of what a model gives to a tool, so that nothing in it can pass for a line of ours."""
ROOMY: Final = 30
"""From so many rows on more of each argument is shown."""
_NEEDS: Final = LOOKS[Shown.NEEDS_YOU]
_KEYS: Final = {Answer.HAPPENED: "1", Answer.DID_NOT_HAPPEN: "2", Answer.UNDO: "3"}


def question(view: RunView, rows: int = 24) -> Question | None:
    """What to ask next; the run's own needs first, then what a stop left open. `rows` is how high the screen is."""
    is_open = view.status not in TERMINAL
    left = [] if is_open else [e for e in view.effects if e.now is EffectState.LEFT and e.can_undo]
    asked: list[ApprovalView | DoubtView | EffectView] = [*view.approvals, *view.doubts, *left]
    if is_open and (needs := [waiting for waiting in view.waiting if waiting.call is None]) and not asked:
        return _need(needs[0].kind, needs[0].what, needs[0].remedy, is_paused=view.status is Status.PAUSED)
    if not asked:
        return None
    return _ask(asked[0], len(asked), rows)


def _ask(about: ApprovalView | DoubtView | EffectView, count: int, rows: int) -> Question:
    if isinstance(about, ApprovalView):
        return _approval(about, count, rows)
    return _doubt(about, count, rows) if isinstance(about, DoubtView) else _left(about, count)


def _approval(asked: ApprovalView, count: int, rows: int) -> Question:
    what = one_line(getattr(asked, "headline", "") or "", 160)
    about = f": {what}?" if what and what != asked.name else "?"
    head = _head("May it call ", one_line(asked.name, 60), about, count)
    given, is_whole = _values(values_shown(asked), rows)
    stays = "the agent waits" if asked.blocks else "the agent works on meanwhile"
    keys = paragraph(
        *_key("y", label(Verb.APPROVE)),
        *_key("n", label(Verb.DENY)),
        *([] if is_whole else _key("v", "View all")),
        (stays, QUIET),
        longest=2,
    )
    shown_as = getattr(asked, "fingerprint", "")
    replies = {"y": Reply(Verb.APPROVE, asked.call, fingerprint=shown_as), "n": Reply(Verb.DENY, asked.call)}
    texts = (head, *given, keys) if rows >= TALL else (head, keys, *given)
    return Question(f"approval {asked.call}", texts, replies, asked.call)


def _doubt(doubt: DoubtView, count: int, rows: int) -> Question:
    head = _head("Did ", one_line(doubt.name, 60), " happen? Nobody knows.", count)
    given, is_whole = _values(values_shown(doubt), rows)
    texts = [head, *given]
    if doubt.may_still_happen:
        texts.append(paragraph(("Whoever began it may still be at it.", ALARM), longest=1))
    replies: dict[str, Reply] = {}
    for answer in doubt.answers:
        if answer.enabled:  # what cannot be chosen takes no room from what can
            key = _KEYS[answer.answer]
            consequence = f"{ANSWERS[answer.answer]}: {one_line(answer.consequence)}"
            texts.append(paragraph(*_key(key, consequence), indent=4, longest=2))
            replies[key] = Reply(Verb.RESOLVE, doubt.call, answer.answer)
    if not is_whole:
        texts.append(paragraph(*_key("v", "View all it was given"), longest=1))
    return Question(f"doubt {doubt.call}", tuple(texts), replies, doubt.call)


def _values(values: Sequence[Value], rows: int) -> tuple[list[Paragraph], bool]:
    """Each argument on lines of its own, shortened by itself; and whether that is all there is.

    Where there is no room for that, their names: what they are is then to be viewed, and the keys stay in sight.
    """
    if rows < TALL:
        names = one_line(", ".join(value.name or "a value" for value in values), 200)
        return [paragraph((f"{_GUTTER}with {names}", QUIET), longest=1)] if values else [], not values
    most, longest = (4, 120) if rows < ROOMY else (12, 600)
    short = [value.shortened(longest) for value in values[:most]]
    texts = [text for value in short for text in value_lines(value, most_lines=1 if rows < ROOMY else 12)]
    if rest := [value.name for value in values[most:]]:
        texts.append(paragraph((f"{_GUTTER}and {one_line(', '.join(rest), 200)}", QUIET), indent=2, longest=2))
    return texts, not rest and not any(value.hidden for value in short)


def value_lines(value: Value, *, most_lines: int) -> list[Paragraph]:
    """An argument, each of its lines behind a gutter, and how much of it is hidden. More lines than that become one."""
    lines = printable(value.text).split("\n")
    if len(lines) > most_lines:
        lines = [" ⏎ ".join(lines)]
    first, *rest = [paragraph(line, gutter=_GUTTER) for line in lines]
    texts = [first._replace(parts=((f"{value.name}: " if value.name else "", QUIET), *first.parts)), *rest]
    return [*texts[:-1], texts[-1]._replace(parts=(*texts[-1].parts, (value.more, ALARM)))]


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
            paragraph(
                (f"{one_line(remedy, 200)} ", ""), *(_key("p", label(Verb.RESUME)) if is_paused else []), longest=2
            ),
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
