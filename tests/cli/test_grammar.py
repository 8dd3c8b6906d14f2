"""One grammar for every verb: what looks like a run is a run, the rest is the text or the call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from checkrein.cli.commands import verbs
from checkrein.cli.session import Row, Session
from checkrein.control.control import Settling
from checkrein.control.view import ApprovalView
from checkrein.core.enums import Status, Verb
from checkrein.core.events import Origin
from checkrein.core.receipts import Receipt
from checkrein.core.verb_specs import SPECS, VerbSpec
from checkrein.errors import CheckreinError, Refused

pytestmark = pytest.mark.anyio

NEWEST, OTHER, WORDY = "r-3f0a91c2b7d4", "r-77aa00112233", "r-facade12aaaa"


class Fake(Session):
    """Runs that are made up. What verbs are taken is written down."""

    def __init__(self, *unfinished: str, calls: Mapping[str, Mapping[str, str]] | None = None) -> None:
        self.where = "sqlite:///runs.db"
        self.unfinished = unfinished
        self.calls = calls or {}
        self.taken: list[tuple[str, str, dict[str, Any]]] = []
        self.refuses: Refused | None = None
        self.nobody: tuple[str, ...] = ()

    async def rows(self, *, unfinished: bool = False, before: str | None = None) -> Sequence[Row]:
        runs = self.unfinished if unfinished else (NEWEST, OTHER, WORDY)
        return [] if before else [Row(run, None, "a") for run in runs]

    async def has(self, run: str) -> bool:
        return run in (NEWEST, OTHER, WORDY)

    async def calls_for(self, verb: str, run: str) -> Mapping[str, str]:
        return self.calls.get(run, {})

    async def approval(self, run: str, call: str) -> ApprovalView | None:
        return ApprovalView(call=call, name=self.calls[run][call], requested_at=0.0, arguments={"to": "ann", "n": 2})

    async def fork(self, run: str, *, at: int, instruction: str | None, by: str) -> tuple[str, Origin]:
        raise NotImplementedError

    async def take(self, spec: VerbSpec, run: str, **given: Any) -> Receipt | Settling | None:
        if self.refuses is not None:
            raise self.refuses
        self.taken.append((spec.name, run, given))
        waits = Settling(
            run=run, verb=Verb.PAUSE, status=Status.PAUSING, seq=1, by="ann", waiting_for="x", accepted="v1"
        )
        return waits if spec.wait is not None else None

    async def waits_for(self, run: str) -> str:
        return "x"

    async def why_unanswered(self, receipt: Receipt) -> str:
        return "x"

    async def unattended(self, run: str) -> Sequence[str]:
        return self.nobody


async def said(session: Fake, line: str) -> tuple[str, dict[str, Any]]:
    """The run that a command line reaches, and what it is given."""
    name, *words = line.split(" ", 1)
    spec = SPECS[name]
    on = verbs._on_run if spec.target == "run" else verbs._on_call
    await on(session, spec, words=tuple(split(*words)), as_json=True)
    _, run, given = session.taken[-1]
    return run, given


def split(line: str = "") -> list[str]:
    import shlex

    return shlex.split(line)


async def refusal(session: Fake, line: str) -> CheckreinError:
    with pytest.raises(CheckreinError) as refused:
        await said(session, line)
    assert session.taken == []
    return refused.value


# fmt: off
TEXTS = [
    ("resume",                          NEWEST, None),
    ('resume "and be brief"',           NEWEST, "and be brief"),
    ("resume briefly",                  NEWEST, "briefly"),
    ("resume last",                     NEWEST, None),
    ('resume last "and be brief"',      NEWEST, "and be brief"),
    ("resume 77aa",                     OTHER,  None),
    ("resume r-77",                     OTHER,  None),
    (f'resume {OTHER} "face it"',       OTHER,  "face it"),
    ("resume face it",                  None,   None),
    ("resume 2027",                     NEWEST, "2027"),
    ("resume add",                      NEWEST, "add"),
    ("resume last facade",              NEWEST, "facade"),
    ("resume r-facade",                 WORDY,  None),
    ('redirect "only Q3"',              NEWEST, "only Q3"),
    ('redirect 77aa "only Q3"',         OTHER,  "only Q3"),
    ('redirect "only Q3" 77aa',         OTHER,  "only Q3"),
    (f'resume "face it" {OTHER}',       OTHER,  "face it"),
    ("resume at last",                  None,   None),
    ('ask "How far are you?"',          NEWEST, "How far are you?"),
    ('ask last "How far are you?"',     NEWEST, "How far are you?"),
]
# fmt: on


@pytest.mark.parametrize(("line", "run", "text"), TEXTS, ids=[line for line, *_ in TEXTS])
async def test_a_verb_with_a_text(line: str, run: str | None, text: str | None) -> None:
    session = Fake(NEWEST)

    if run is None:
        assert (await refusal(session, line)).code == "usage"
        return
    reached, given = await said(session, line)

    assert (reached, given.get("instruction", given.get("question"))) == (run, text)


@pytest.mark.parametrize(("line", "run"), [("pause", NEWEST), ("cancel last", NEWEST), ("cancel 77aa", OTHER)])
async def test_a_verb_that_takes_a_run_only(line: str, run: str) -> None:
    assert (await said(Fake(NEWEST), line))[0] == run


CALLS = {NEWEST: {"c2": "send_mail", "c3": "crunch"}, OTHER: {"c9": "wire"}}

# fmt: off
OF_CALLS = [
    ("abort crunch",                     NEWEST, "c3"),
    ("abort c2",                         NEWEST, "c2"),
    ("abort wire",                       OTHER,  "c9"),
    ("abort 77aa",                       OTHER,  "c9"),
    ("abort last send_mail",             NEWEST, "c2"),
    ("abort send_mail last",             NEWEST, "c2"),
    ("approve send_mail",                NEWEST, "c2"),
    (f"approve wire {OTHER}",            OTHER,  "c9"),
    (f"approve {OTHER} wire",            OTHER,  "c9"),
    ("deny wire",                        OTHER,  "c9"),
    ("resolve wire happened",            OTHER,  "c9"),
    ("resolve 77aa did-not-happen",      OTHER,  "c9"),
    ("resolve last crunch undo",         NEWEST, "c3"),
    ("retry_undo crunch",                NEWEST, "c3"),
]
# fmt: on


@pytest.mark.parametrize(("line", "run", "call"), OF_CALLS, ids=[line for line, *_ in OF_CALLS])
async def test_a_verb_on_a_call(line: str, run: str, call: str) -> None:
    session = Fake(NEWEST, OTHER, calls=CALLS)

    reached, given = await said(session, line)

    assert (reached, given.get("call", given.get("effect"))) == (run, call)


@pytest.mark.parametrize(
    ("line", "code", "words"),
    [
        ("resume facade", "ambiguous_word", "'facade' may be run r-facade12aaaa, or the instruction."),
        ("redirect facade", "ambiguous_word", "For the run, say r-facade12aaaa; for the instruction, say the run"),
        ("redirect last", "usage", "The instruction is missing after run r-3f0a91c2b7d4."),
        ("redirect 77aa", "usage", "The instruction is missing after run r-77aa00112233."),
        ("redirect only Q3", "usage", "'only' is no run, and what follows is more than the instruction"),
        ("resume r-nope", "run_not_found", "If 'r-nope' is the instruction, say the run before it."),
        ("resume 3f0b", "run_not_found", "There is no run '3f0b'"),
        ("pause what runs is held", "usage", "A run is all that can be named here"),
        ("pause nope", "run_not_found", "There is no run 'nope'"),
        ("abort nothing", "ambiguous_run", "Say which run"),
        ("resolve last maybe", "unknown_answer", "say happened, did_not_happen or undo"),
        ("resolve RUN did_not_happen it is done again", "unknown_answer", "'again' is no answer"),
        ("approve last", "call_not_named", "Nobody sits at a terminal"),
    ],
)
async def test_what_cannot_be_meant_is_refused_with_both_readings(line: str, code: str, words: str) -> None:
    session = Fake(NEWEST, OTHER, calls={NEWEST: {"c2": "send_mail"}, OTHER: {"c9": "wire"}})

    refused = await refusal(session, line)

    assert (refused.code, words in refused.message) == (code, True), refused.message


async def test_a_word_that_is_a_run_and_a_call_is_refused_with_both() -> None:
    session = Fake(NEWEST, calls={NEWEST: {"c2": "facade"}})

    refused = await refusal(session, "abort facade")

    assert refused.code == "ambiguous_word"
    assert "may be run r-facade12aaaa, or the call" in refused.message


async def test_approve_says_what_was_approved(capsys: pytest.CaptureFixture[str]) -> None:
    session = Fake(NEWEST, calls={NEWEST: {"c2": "send_mail"}})

    await verbs._on_call(session, SPECS["approve"], words=("c2",), as_json=False)

    assert capsys.readouterr().out.splitlines() == [
        "Approved send_mail (call c2 of run r-3f0a91c2b7d4).",
        '  to: "ann"',
        "  n: 2",
    ]


async def test_it_is_said_when_nobody_is_there_to_act_on_a_decision(capsys: pytest.CaptureFixture[str]) -> None:
    session = Fake(NEWEST, calls={NEWEST: {"c2": "send_mail"}})
    session.nobody = ("Queued: no process with agent a is running.", "Take it up with: checkrein run FILE --resume r")

    await verbs._on_call(session, SPECS["resolve"], words=("c2", "happened"), as_json=False)

    assert capsys.readouterr().out.splitlines()[1] == (
        "No process is there to act on it. Take it up with: checkrein run FILE --resume r"
    )


@pytest.mark.parametrize("line", ["resume", "redirect more", "ask why", "approve c2"])
async def test_a_verb_after_the_end_is_told_how_to_go_on(line: str) -> None:
    session = Fake(NEWEST, calls={NEWEST: {"c2": "send_mail"}})
    session.refuses = Refused("…; there was nothing left to stop.", code="finished", run=NEWEST, status="completed")

    refused = await refusal(session, line)

    assert refused.code == "finished"
    assert f'To go on from it: checkrein run FILE "…" --continue {NEWEST}' in refused.message
    assert "nothing left to stop" not in refused.message
