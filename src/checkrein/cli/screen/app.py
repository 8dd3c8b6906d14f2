"""The screen of one run: it shows what it knows of the run, and turns keys into verbs.

Nothing is shown because a key was pressed; only because an event says so. Verbs run beside, so the screen never waits.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from enum import StrEnum
from typing import ClassVar, Final

from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.events import Resize

from checkrein.cli import output
from checkrein.cli.attach import Interrupts, Press
from checkrein.cli.screen.bar import SHORT, TALL, Situation, bar, waited_for
from checkrein.cli.screen.composer import Composer, Purpose
from checkrein.cli.screen.questions import Question, Reply, question, value_lines
from checkrein.cli.screen.sheet import Panel, Paragraph, Sheet, lines_of, paragraph
from checkrein.cli.screen.style import QUIET, STRONG, look_of, one_line
from checkrein.cli.screen.tasks import task_list
from checkrein.cli.screen.terminal import Terminal
from checkrein.cli.screen.text import live_text
from checkrein.cli.screen.verbs import VerbSender
from checkrein.cli.screen.watch import RunWatch
from checkrein.cli.wording import halt_sentence
from checkrein.control.control import Control
from checkrein.control.view import RunView
from checkrein.core.enums import TERMINAL, Answer, Status

_log = logging.getLogger(__name__)


def head(view: RunView, rows: int) -> list[Paragraph]:
    """The top of the screen: how the run stands, its goal, and what it is called."""
    goal = paragraph(
        look_of(view).part(), "  ", (one_line(view.goal, 400), STRONG), indent=2, longest=2 if rows >= 24 else 1
    )
    names = f"agent {one_line(view.agent, 60)} · run {view.id} · thread {one_line(view.thread, 60)}"
    if view.thread == view.id:
        names = f"agent {one_line(view.agent, 60)} · run {view.id}"
    return [goal] if rows < 12 else [goal, paragraph((names, QUIET), longest=1)]


class Left(StrEnum):
    """How a person left the screen."""

    FINISHED = "finished"
    """The run has ended."""
    DETACHED = "detached"
    """It goes on without this screen."""
    PAUSED = "paused"
    """A person left it paused."""
    KILL = "kill"
    """This process is to end at once."""


REFRESHES_PER_SECOND: Final = 12
WIDE: Final = 90
"""From how many columns on the task list stands beside the text, not above it."""
NOTICE_SECONDS: Final = 8.0
READ_FIRST_SECONDS: Final = 0.6
"""A question must have been on the screen so long before a key answers it."""
_LETTERS: Final = frozenset({"pause", "redirect", "instruct", "cancel", "ask", "abort", "answer", "leave", "view_all"})


class RunScreen(App[Left]):
    ENABLE_COMMAND_PALETTE = False
    AUTO_FOCUS: ClassVar[str | None] = None
    CSS: ClassVar[str] = """
    Screen { overflow: hidden; layout: vertical; }
    #head { height: auto; padding: 0 1; }
    #body { height: 1fr; layout: vertical; }
    #tasks { padding: 0 1; }
    #text { padding: 0 1; }
    #ask { height: auto; padding: 0 1; }
    Composer { padding: 0 1; }
    #bar { dock: bottom; height: auto; padding: 0 1; }
    Screen.-tall #bar { border-top: solid ansi_bright_black; }
    Screen.-tall #head { border-bottom: solid ansi_bright_black; }
    Screen.-wide #body { layout: horizontal; }
    Screen.-wide #tasks { width: 2fr; height: 1fr; border-right: solid ansi_bright_black; }
    Screen.-wide #text { width: 3fr; height: 1fr; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+c", "interrupt", priority=True, show=False),
        Binding("ctrl+q", "leave", priority=True, show=False),
        Binding("q", "leave", show=False),
        Binding("p", "pause", show=False),
        Binding("r", "redirect", show=False),
        Binding("i", "instruct", show=False),
        Binding("c", "cancel", show=False),
        Binding("a,question_mark", "ask", show=False),
        Binding("x", "abort", show=False),
        Binding("v", "view_all", show=False),
        *(Binding(key, f"answer('{key}')", show=False) for key in "yn123u"),
        Binding("up", "scroll(-1)", show=False),
        Binding("down", "scroll(1)", show=False),
        Binding("pageup", "page(-1)", show=False),
        Binding("pagedown", "page(1)", show=False),
        Binding("home", "page(-1000)", show=False),
        Binding("end", "follow", show=False),
        Binding("tab", "swap", priority=True, show=False),
    ]

    def __init__(
        self,
        watch: RunWatch,
        control: Control,
        run: str,
        *,
        owns: bool,
        by: str,
        is_kept: bool = True,
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(driver_class=Terminal)
        self._run_watch = watch
        self._hands = VerbSender(control, run, by, self.say)
        self._run_id = run
        self._owns = owns
        self._is_kept = is_kept
        self._resolving: Reply | None = None
        """What is sent with the result that a person is writing."""
        self._all_of: tuple[str, list[Paragraph]] | None = None
        """A call, and all that it was given, while a person looks at that."""
        self._clock = clock
        self._interrupts = Interrupts(owns=owns)
        self._view: RunView | None = None
        self._question: Question | None = None
        self._asked_at = 0.0
        self._notice, self._notice_until = "", 0.0
        self._hint = ""
        self._painted = 0.0
        self._tasks_first = False
        self._following: asyncio.Task[None] | None = None

    def compose(self) -> ComposeResult:
        yield Panel(id="head")
        with Container(id="body"):
            yield Sheet(id="tasks", follows_end=False)
            yield Sheet(id="text", follows_end=True)
        yield Panel(id="ask")
        yield Composer()
        yield Panel(id="bar")

    def on_mount(self) -> None:
        self.theme = "ansi-dark"
        self._following = asyncio.get_running_loop().create_task(
            self._run_watch.run(), name=f"screen of {self._run_id}"
        )
        self._following.add_done_callback(self._unfollowed)
        self.set_interval(1 / REFRESHES_PER_SECOND, self._tick)
        self._paint()

    def _unfollowed(self, watching: asyncio.Task[None]) -> None:
        """It never ends by itself: if a mistake ended it, what is shown is old, and must look so."""
        error = None if watching.cancelled() else watching.exception()
        if error is not None:
            _log.error("what feeds the screen has ended", exc_info=error, extra={"run": self._run_id})
            self._run_watch.failed(error.exceptions[0] if isinstance(error, BaseExceptionGroup) else error)

    async def settle(self, *, at_once: bool) -> None:
        """After leaving: verbs that were just asked for get a moment; then everything here ends."""
        await self._hands.settle(at_once=at_once)
        if self._following is not None:
            self._following.cancel()
            await asyncio.gather(self._following, return_exceptions=True)

    # -- showing

    def on_resize(self, event: Resize) -> None:
        self.call_later(self._paint)  # once the size is known here too

    def on_sheet_resized(self, event: Sheet.Resized) -> None:
        self._paint()

    def _tick(self) -> None:
        """Show what is new, some times a second at most; without news once a second, for the clock."""
        if self._run_watch.is_fresh or self._clock() - self._painted >= 1.0:
            self._paint()

    def _halted(self) -> list[Paragraph]:
        """What operators have halted, above all else: it says why nothing begins."""
        lines = [halt_sentence(one.scope, one.name, one.by, one.reason, one.at) for one in self._run_watch.halts]
        return [paragraph((line, "reverse bold red"), longest=2) for line in lines[:3]]

    def _paint(self) -> None:
        self._run_watch.is_fresh = False
        self._painted = now = self._clock()
        view = self._view = self._run_watch.view()
        if view is None or not self.is_running:
            return
        self._notice_status(view)
        rows, columns = self.size.height, self.size.width
        is_wide, is_short = columns >= WIDE, rows < SHORT
        self.screen.set_class(is_wide, "-wide")
        self.screen.set_class(rows >= TALL, "-tall")
        composer = self.query_one(Composer)
        self.query_one("#bar", Panel).show(bar(view, self._situation(now)), columns - 2)
        heads = [] if is_short and composer.is_open else [*self._halted(), *head(view, rows)]
        self.query_one("#head", Panel).show(heads, columns - 2)
        asked = self._asked(view, now)
        texts = () if asked is None or (is_short and composer.is_open) else asked.texts
        self.query_one("#ask", Panel).show(texts, columns - 2)
        composer.show(view.status, columns - 2, rows)
        self._paint_body(view, now, is_wide=is_wide)

    def _paint_body(self, view: RunView, now: float, *, is_wide: bool) -> None:
        tasks, text = self.query_one("#tasks", Sheet), self.query_one("#text", Sheet)
        width = tasks.content_size.width if is_wide else self.size.width - 2
        share = max(1, self.query_one("#body").size.height * (2 if self._tasks_first else 1) // 3)
        is_compact = not is_wide and self.size.height < TALL
        rows = None if is_wide or self._tasks_first else share
        listed = task_list(view, width, view.finished_at or now, is_compact=is_compact, rows=rows)
        tasks.show(listed)
        text.show(self._all_of[1] if self._all_of is not None else live_text(view, now, is_kept=self._is_kept))
        if is_wide:
            tasks.styles.height = "1fr"
        else:
            tasks.styles.height = min(len(lines_of(listed, max(1, width))[0]), share)

    def _situation(self, now: float) -> Situation:
        return Situation(
            now=now,
            owns=self._owns,
            is_composing=self.query_one(Composer).is_open,
            away=self._run_watch.away,
            away_seconds=now - self._run_watch.away_since,
            is_driven=self._run_watch.is_driven,
            notice=self._notice if now < self._notice_until else self._hint,
            rows=self.size.height,
            is_kept=self._is_kept,
        )

    def _notice_status(self, view: RunView) -> None:
        self._interrupts.saw(view.status)
        if view.status in TERMINAL or not self._interrupts.is_pressed:
            self._hint = ""

    def _asked(self, view: RunView, now: float) -> Question | None:
        asked = question(view, self.size.height if self._all_of is None else 0)  # they are shown whole above it
        if asked is None or self._question is None or asked.about != self._question.about:
            self._asked_at = now
            self._all_of = None
        self._question = asked
        return asked

    def say(self, text: str) -> None:
        """One line in the bar, for a while."""
        self._notice, self._notice_until = text, self._clock() + NOTICE_SECONDS
        self._paint()

    # -- keys

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """While a person writes, letters are letters."""
        return not (action in _LETTERS and self.is_running and self.query_one(Composer).is_open)

    @property
    def _status(self) -> Status | None:
        return None if self._view is None else self._view.status

    def action_pause(self) -> None:
        if self._view is not None and self._view.status is Status.PAUSED:
            self._hands.resume(self._view)
        else:
            self._hands.pause()

    def action_cancel(self) -> None:
        self._hands.cancel()

    def action_redirect(self) -> None:
        self._open(Purpose.REDIRECT, self._run_watch.next_step)

    def action_instruct(self) -> None:
        if self._status is Status.PAUSED:
            self._open(Purpose.RESUME)

    def action_ask(self) -> None:
        self._open(Purpose.ASK)

    def _open(self, purpose: Purpose, given: str = "") -> None:
        if self._status in TERMINAL:
            self.say("It has ended; nothing can be sent any more.")
            return
        self.query_one(Composer).open(purpose, given)
        self._paint()

    def action_abort(self) -> None:
        """Do not wait for what a pause waits for."""
        if self._view is not None and self._view.status is Status.PAUSING:
            for call in waited_for(self._view):
                self._hands.abort(call.id, call.name)

    def action_answer(self, key: str) -> None:
        asked = self._question
        if asked is None or key not in asked.replies:
            return
        if self._clock() - self._asked_at < READ_FIRST_SECONDS:
            self.say("That question has only just come up: read it, then answer.")
            return
        reply = asked.replies[key]
        if reply.answer is Answer.HAPPENED:
            self._resolving = reply
            self._open(Purpose.RESULT)
        else:
            self._hands.answer(reply)

    def action_view_all(self) -> None:
        """All that the call in question was given, in place of the text; again: back to the text."""
        if self._all_of is not None or self._question is None or not self._question.call:
            self._all_of = None
            self._paint()
        else:
            self.run_worker(self._look_at(self._question.call), exclusive=True)

    async def _look_at(self, call: str) -> None:
        values = await self._run_watch.given_to(call)
        head = paragraph((f"All that {call} is given. v goes back.", STRONG), is_marked=True)
        lines = [text for value in values for text in value_lines(value, most_lines=len(value.text) + 1)]
        self._all_of = (call, [head, *lines])
        self._paint()

    def on_composer_sent(self, sent: Composer.Sent) -> None:
        sent.stop()
        composer = self.query_one(Composer)

        def refused() -> None:
            composer.give_back(sent.purpose, sent.text)

        if sent.purpose is Purpose.RESULT:
            if self._resolving is not None:
                self._hands.answer(self._resolving, sent.text, refused)
        elif self._view is not None:
            self._hands.send(sent.purpose, sent.text, self._view, refused)

    # -- leaving

    def action_interrupt(self) -> None:
        """Ctrl-C, as a key or as a signal."""
        Terminal.unheard.heard()
        match self._interrupts.press():
            case Press.LEAVE:
                self.action_leave()
            case Press.PAUSE:
                self._hands.pause()
                elsewhere = output.command(f"resume {self._run_id}")
                self._hint = (
                    f"Ctrl-C again cancels it. Once paused, p resumes it; or from another terminal:\n{elsewhere}"
                )
            case Press.IS_PAUSED:
                self._hint = "It is paused. Ctrl-C again cancels it; q leaves it paused, p resumes."
            case Press.CANCEL:
                self._hands.cancel()
                self._hint = (
                    "You asked to cancel. Ctrl-C again ends this process at once; what it does is then in doubt."
                )
            case Press.IS_CANCELLING:
                self._hint = "It is being cancelled. Ctrl-C again ends this process at once."
            case Press.KILL:
                self.exit(Left.KILL)
                return
        self._notice_until = 0.0
        self._paint()

    def action_leave(self) -> None:
        if self._status in TERMINAL:
            self.exit(Left.FINISHED)
        elif not self._owns:
            self.exit(Left.DETACHED)
        elif self._status is Status.PAUSED:
            self.exit(Left.PAUSED)
        else:
            self.say("This terminal drives the run. p pauses it, then q leaves it paused; c cancels it.")

    # -- scrolling

    def _sheet(self) -> Sheet:
        return self.query_one("#tasks" if self._tasks_first else "#text", Sheet)

    def action_scroll(self, lines: int) -> None:
        self._sheet().scroll_lines(lines)

    def action_page(self, pages: int) -> None:
        sheet = self._sheet()
        sheet.scroll_lines(pages * max(1, sheet.size.height - 1))

    def action_follow(self) -> None:
        self._sheet().follow()

    def action_swap(self) -> None:
        """Scroll, and where there is little room enlarge, the other part."""
        self._sheet().follow()
        self._tasks_first = not self._tasks_first
        self._paint()
