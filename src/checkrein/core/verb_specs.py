"""Every verb, described once: what it takes, who may ask for it, what is answered, and its words.

HTTP routes, request bodies, the OpenAPI description and the commands of a terminal are made from `SPECS`. `Control`
and `Run` are written out for people and type checkers; a test compares their signatures with it. What a verb does to a
run in each status is said in `transitions`, and what it would do to one run now in `consequences`.

Standard library and enums only: a command line reads it before it has parsed anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from types import MappingProxyType, NoneType
from typing import Any, Final, Literal, get_args

from checkrein.core.enums import Answer, Undo, When

Target = Literal["run", "call", "scope"]
"""What a verb is about: a run, a single call of one, or every run in a scope (`halt`, `reset`)."""

MayAsk = Literal["viewer", "controller", "operator"]
"""The least role that may ask: each role may all that the one before it may."""

Answers = Literal["receipt", "call", "nothing", "report"]
"""What is answered: the receipt, or what it still waits for; the call as it is then; that it is written down; or what
became of a whole scope."""

HaltScope = Literal["run", "agent", "owner", "all"]


class _Required(Enum):
    REQUIRED = "required"

    def __repr__(self) -> str:
        return "REQUIRED"


REQUIRED: Final = _Required.REQUIRED
"""The default of a parameter that has none."""


class ExpectedSeq(StrEnum):
    """What becomes of an `expected_seq`, the `status_seq` of the run as the person was looking at it."""

    CHECKED = "checked"
    """Another one refuses the verb as stale."""
    IGNORED = "ignored"
    """HTTP takes it and nobody looks at it: a stop is never stale. Python has no such parameter."""
    ABSENT = "absent"
    """Not taken at all."""


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """One value that a verb takes beside its run, and its call if it is about one."""

    name: str
    type: Any
    """As `Control` takes it: `str`, `float`, an enum, `str | None`; `Any` is whatever JSON can say."""
    help: str
    """A sentence for people."""
    default: Any = REQUIRED
    by_position: bool = False
    """Given without its name, in Python and in a terminal."""
    shortest: int = 0
    """In characters, of a text that comes over HTTP; here and in `longest`."""
    longest: int = 0
    body_name: str = ""
    """What HTTP calls it, where that is another name."""

    @property
    def is_required(self) -> bool:
        return self.default is REQUIRED

    @property
    def is_optional(self) -> bool:
        """Whether None may be given."""
        return NoneType in get_args(self.type)

    @property
    def choices(self) -> tuple[str, ...]:
        """The words it is one of; empty when it is not from a closed list."""
        if isinstance(self.type, type) and issubclass(self.type, StrEnum):
            return tuple(self.type)
        return tuple(one for one in get_args(self.type) if isinstance(one, str))


@dataclass(frozen=True, kw_only=True)
class WaitSeconds:
    """How long a verb waits for its receipt before it says what it still waits for, by who asks."""

    control: float = 5.0
    program: float = 5.0
    terminal: float = 5.0
    http: float = 5.0
    """Short for every verb: what sits between a page and its server ends requests that last."""


@dataclass(frozen=True, kw_only=True)
class VerbSpec:
    """One verb. Its `by`, and its `request_id`, `expected_seq` and `wait` if it has them, are not in `parameters`."""

    name: str
    """The method of `Control` and `Run`."""
    target: Target
    role: MayAsk
    answers: Answers
    summary: str
    """The consequence in a phrase."""
    description: str = ""
    """More of it, where HTTP says more."""
    help: str
    """For a terminal: a sentence, and perhaps paragraphs below it."""
    parameters: tuple[Parameter, ...] = ()
    wait: WaitSeconds | None = None
    """None: in force when it is taken, so there is nothing to wait for."""
    expected_seq: ExpectedSeq = ExpectedSeq.ABSENT
    has_request_id: bool = True
    """Whether a repeat with the same id is known: it does nothing twice and gets the same answer."""
    call_name: str = "call"
    """What `Control` and `Run` call the id of the call."""
    path: str = ""
    """The end of its address over HTTP, where that is not its name."""
    example: Mapping[str, object] = field(default_factory=dict)
    """A request body."""

    @property
    def takes_something(self) -> bool:
        """Whether a request without a body cannot be meant."""
        return any(one.is_required for one in self.parameters)


# -- parameters that several verbs share, or that every one has

BY: Final = Parameter(name="by", type=str, help="Who asks, for the record.")
REASON: Final = Parameter(name="reason", type=str, default="", help="Why, for the record.", longest=10_000)
NOTE: Final = Parameter(name="note", type=str, default="", help="A word for the record.", longest=10_000)
WAIT: Final = Parameter(name="wait", type=float, default=5.0, help="How many seconds to wait for the receipt.")
REQUEST_ID: Final = Parameter(
    name="request_id",
    type=str,
    default="",
    help="Made by the client; a repeat of a verb with the same id is not done twice, and gets the same answer.",
)
EXPECTED_SEQ: Final = Parameter(
    name="expected_seq",
    type=int | None,
    default=None,
    help="The `status_seq` of the run as it was looked at: refuses a click that comes too late.",
)

_SCOPE: Final = (
    Parameter(
        name="scope", type=HaltScope, help="Of whose runs: of one run, agent or owner, or all.", by_position=True
    ),
    Parameter(
        name="name",
        type=str,
        default="",
        help="Which run, agent or owner; `all` has none.",
        longest=200,
        by_position=True,
    ),
    REASON,
)


# -- on a run

PAUSE: Final = VerbSpec(
    name="pause",
    target="run",
    role="controller",
    answers="receipt",
    summary="Stop the spending and keep the context",
    help="Stop the spending and hold the context.\n\n"
    "The model is cut off; a tool in flight finishes, is stopped or is frozen, as it says itself.",
    parameters=(REASON,),
    wait=WaitSeconds(),
    expected_seq=ExpectedSeq.IGNORED,
    example={"reason": "let me look"},
)

RESUME: Final = VerbSpec(
    name="resume",
    target="run",
    role="controller",
    answers="receipt",
    summary="Go on exactly there, perhaps with an instruction",
    help="Go on exactly there, with an instruction if you like.\n\n"
    "After a cap was reached, the same allowance is granted again.\n\n"
    "A run whose process has ended is queued until one takes it up: checkrein run FILE --resume RUN.",
    parameters=(
        Parameter(
            name="instruction",
            type=str | None,
            default=None,
            help="What to tell the agent as it goes on.",
            longest=100_000,
            by_position=True,
        ),
        REASON,
    ),
    wait=WaitSeconds(),
    expected_seq=ExpectedSeq.CHECKED,
    example={"instruction": "summarise and stop"},
)

REDIRECT: Final = VerbSpec(
    name="redirect",
    target="run",
    role="controller",
    answers="receipt",
    summary="Stop what is in flight, keep finished work, and do this next",
    help="Rewrite the next step; finished work is kept.",
    parameters=(
        Parameter(
            name="instruction",
            type=str,
            help="What the agent is to do next.",
            longest=100_000,
            by_position=True,
        ),
        Parameter(name="when", type=When, default=When.NOW, help="Stop what is in flight, or let it finish first."),
        REASON,
    ),
    wait=WaitSeconds(),
    expected_seq=ExpectedSeq.CHECKED,
    example={"instruction": "only Q3"},
)

CANCEL: Final = VerbSpec(
    name="cancel",
    target="run",
    role="controller",
    answers="receipt",
    summary="Stop everything, undo what is open, keep partial work in the thread",
    help="Stop everything now and undo what is open.\n\nPartial work is saved to the thread.",
    parameters=(
        Parameter(name="undo", type=Undo, default=Undo.OPEN, help="Undo what is still open, all it did, or nothing."),
        REASON,
    ),
    wait=WaitSeconds(program=60.0, terminal=35.0),
    expected_seq=ExpectedSeq.IGNORED,
    example={"reason": "wrong direction", "undo": "open"},
)

ASK: Final = VerbSpec(
    name="ask",
    target="run",
    role="controller",
    answers="receipt",
    summary="Ask a side question",
    description="Answered from a copy of the context, without tools, while the run goes on or stays paused.",
    help="Ask a side question without disturbing the run.\n\nIt is answered from a copy of the context, without tools.",
    parameters=(
        Parameter(name="question", type=str, help="What you want to know.", longest=100_000, by_position=True),
        REASON,
    ),
    wait=WaitSeconds(control=60.0, program=60.0, terminal=60.0),
    expected_seq=ExpectedSeq.CHECKED,
    example={"question": "How far are you?"},
)

ADD_REASON: Final = VerbSpec(
    name="add_reason",
    target="run",
    role="controller",
    answers="nothing",
    summary="Say why it was stopped, also afterwards",
    help="Say why a run was stopped, also afterwards.",
    parameters=(
        Parameter(name="reason", type=str, help="Why it was stopped.", shortest=1, longest=200, by_position=True),
        NOTE,
    ),
    path="reason",
    example={"reason": "wrong direction"},
)


# -- on a single call

APPROVE: Final = VerbSpec(
    name="approve",
    target="call",
    role="controller",
    answers="call",
    summary="Let a call be made that waits for consent",
    description="Made exactly as it was asked for, or with the `arguments` that are given instead. A redirect or a "
    "cancel withdraws it as long as the call has not begun.",
    help="Let a call happen that waits for your consent.\n\n"
    "It is made exactly as it was asked for; --arguments makes it with others.",
    parameters=(
        NOTE,
        Parameter(
            name="fingerprint",
            type=str,
            default="",
            help="The `fingerprint` of what you were shown: refuses consent to anything else.",
            longest=200,
        ),
        Parameter(
            name="arguments",
            type=dict[str, Any] | None,
            default=None,
            help="Arguments to make it with instead, by name, as JSON; those that are not named stay as they are.",
        ),
        Parameter(
            name="always",
            type=bool,
            default=False,
            help="Approve every later call of the same tool in this run too, until one is denied or the run is "
            "redirected.",
        ),
    ),
    example={"note": "checked the address"},
)

DENY: Final = VerbSpec(
    name="deny",
    target="call",
    role="controller",
    answers="call",
    summary="Do not let it be made",
    help="Refuse a call that waits for your consent.\n\nThe agent is told, and goes on without it.",
    parameters=(NOTE,),
    example={"note": "not to customers"},
)

RESOLVE: Final = VerbSpec(
    name="resolve",
    target="call",
    role="controller",
    answers="call",
    summary="Say what became of a call in doubt",
    help="Say what became of a call that is in doubt.\n\n"
    "`happened` records it as done, with a --result if it had one; `did_not_happen` has it done now, if the run waits "
    "for it; `undo` calls its undo.",
    parameters=(
        Parameter(
            name="answer",
            type=Answer,
            help="What happened: happened, did_not_happen or undo.",
            by_position=True,
            body_name="outcome",
        ),
        Parameter(name="result", type=Any, default=None, help="With `happened`: what it returned, as JSON."),
        NOTE,
    ),
    example={"outcome": "happened"},
)

ABORT: Final = VerbSpec(
    name="abort",
    target="call",
    role="controller",
    answers="receipt",
    summary="Do not wait for this call: stop it",
    help="Stop one call in flight; the run goes on.\n\nFor example the one that a pause waits for.",
    parameters=(REASON,),
    wait=WaitSeconds(),
    example={"wait": 5},
)

RETRY_UNDO: Final = VerbSpec(
    name="retry_undo",
    target="call",
    role="controller",
    answers="call",
    summary="Try an undo again that did not work",
    help="Try once more to undo what a cancel had to leave.",
    call_name="effect",
)

CHECK: Final = VerbSpec(
    name="check",
    target="call",
    role="controller",
    answers="call",
    summary="Have the tool of a call in doubt look once more whether it happened",
    help="Have the tool of a call in doubt look once more whether it happened.",
)


# -- for operators, on every run in a scope; latched, so a repeat needs no id to be known by

HALT: Final = VerbSpec(
    name="halt",
    target="scope",
    role="operator",
    answers="report",
    summary="The kill switch",
    description="Latched: nothing begins in the scope until it is reset, also after a restart. Every live run in "
    "it is ended; nothing is undone. `name` says which run, agent or owner; `all` has none.",
    help="The kill switch.\n\n"
    "Latched: nothing begins in the scope until it is reset, also after a restart. Every live run in it is ended; "
    "nothing is undone.",
    parameters=_SCOPE,
    wait=WaitSeconds(),
    has_request_id=False,
    example={"scope": "agent", "name": "churn", "reason": "runaway"},
)

RESET: Final = VerbSpec(
    name="reset",
    target="scope",
    role="operator",
    answers="report",
    summary="Unlatch the kill switch",
    description="Nothing is resumed by it. Only the token may that the server was given as `CHECKREIN_HALT_TOKEN`.",
    help="Unlatch the kill switch.\n\nNothing is resumed by it.",
    parameters=_SCOPE,
    has_request_id=False,
    example={"scope": "agent", "name": "churn"},
)

SPECS: Final[Mapping[str, VerbSpec]] = MappingProxyType(
    {
        spec.name: spec
        for spec in (
            PAUSE, RESUME, REDIRECT, CANCEL, ASK, ADD_REASON,
            APPROVE, DENY, RESOLVE, RETRY_UNDO, CHECK, ABORT,
            HALT, RESET,
        )
    }
)  # fmt: skip
"""By name, in the order in which they are listed."""
