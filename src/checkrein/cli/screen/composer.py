"""One line to write in: a redirect, an instruction to resume with, a side question, or what a call returned.

Closing it keeps what was written, and so does everything that happens to the run meanwhile. Only when it was
sent and taken is it gone.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.events import Paste
from textual.message import Message
from textual.widgets import Input

from checkrein.cli.screen.sheet import Panel, paragraph
from checkrein.cli.screen.style import QUIET, STRONG
from checkrein.core.enums import TERMINAL, Status


class Purpose(Enum):
    REDIRECT = auto()
    RESUME = auto()
    ASK = auto()
    RESULT = auto()
    """What a call brought of which a person says that it happened. May be left empty."""


def title(purpose: Purpose, status: Status) -> tuple[str, str]:
    """What sending would do now, and what goes on until then."""
    if status in TERMINAL:
        return "It has ended.", "Nothing can be sent any more."
    if purpose is Purpose.RESULT:
        return "What did it return?", "JSON or plain words. Enter with nothing: it happened, without a result."
    if purpose is Purpose.ASK:
        return "Ask on the side.", "It is answered from a copy of the context; the run is not disturbed."
    if status is Status.PAUSED and purpose is Purpose.RESUME:
        return "Resume with an instruction.", "It stays paused until you send."
    if status is Status.PAUSED:
        return "Redirect.", "Rewrite the next step; it stays paused until you send."
    return "Redirect.", "Rewrite the next step; the agent works on until you send."


class Field(Input):
    """An input in which a pasted text of several lines stays whole, on one."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "close", show=False)]

    class Closed(Message):
        """The person wants the keys back."""

    def action_close(self) -> None:
        self.post_message(self.Closed())

    def _on_paste(self, event: Paste) -> None:
        event.stop()
        event.prevent_default()
        self.insert_text_at_cursor(" ".join(event.text.split()))


class Composer(Vertical):
    DEFAULT_CSS: ClassVar[str] = """
    Composer { height: auto; display: none; }
    Composer.-open { display: block; }
    Composer Field { padding: 0 1; text-style: underline; }
    """

    class Sent(Message):
        def __init__(self, purpose: Purpose, text: str) -> None:
            super().__init__()
            self.purpose = purpose
            self.text = text

    def __init__(self) -> None:
        super().__init__()
        self._purpose = Purpose.REDIRECT
        self._drafts: dict[Purpose, str] = {}
        self._given: dict[Purpose, str] = {}
        """What each was pre-filled with: what is still that is no draft."""

    def compose(self) -> ComposeResult:
        yield Panel(id="title")
        yield Field(select_on_focus=False, compact=True)

    @property
    def field(self) -> Field:
        return self.query_one(Field)

    @property
    def is_open(self) -> bool:
        return self.has_class("-open")

    def open(self, purpose: Purpose, given: str = "") -> None:
        """Take up the draft, or begin with `given`."""
        self._purpose = purpose
        draft = self._drafts.get(purpose, "")
        self._given[purpose] = given
        self.field.value = draft or given
        self.field.cursor_position = len(self.field.value)
        self.add_class("-open")
        self.field.focus()

    def close(self) -> None:
        self._keep()
        self.remove_class("-open")
        self.screen.set_focus(None)

    def give_back(self, purpose: Purpose, text: str) -> None:
        """It was not taken: what was written is a draft again."""
        self._drafts.setdefault(purpose, text)

    def _keep(self) -> None:
        text = self.field.value
        if text.strip() and text != self._given.get(self._purpose):
            self._drafts[self._purpose] = text
        else:
            self._drafts.pop(self._purpose, None)

    def show(self, status: Status, width: int, rows: int) -> None:
        """The run has changed, or the screen; what was written stays."""
        head, rest = title(self._purpose, status)
        keys = " Enter sends, Esc keeps the draft."
        self.query_one(Panel).show(
            [paragraph((head, STRONG), (keys, QUIET), f" {rest}", longest=2 if rows >= 14 else 1)], width
        )

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        if event.value.strip() or self._purpose is Purpose.RESULT:
            self.field.value = ""
            self.close()
            self.post_message(self.Sent(self._purpose, event.value.strip()))

    def on_field_closed(self, event: Field.Closed) -> None:
        event.stop()
        self.close()
