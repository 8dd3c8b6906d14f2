"""One storm: a few runs of bad tools, programs and models, random verbs, and processes that are killed and frozen.

What is found wrong, with nobody of the runtime as a witness:

- a verb that is not answered in its time, or by a failure of the server;
- a cancel that does not settle within its time;
- a line of a tool after a receipt that says it was stopped (*aborted*, *killed*) or its effect *undone*; what a receipt
  calls *detached* or *in doubt* may go on;
- an innocent run beside it that does not come to its end, or a tool of it that was not called exactly once, unless the
  call was honestly *in doubt*.

All that is random follows from the seed. What processes do meanwhile does not: the same seed plays the same script.
"""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

from checkrein.timings import SETTLE_SECONDS
from tests.server.processes.client import Answer
from tests.support.patience import within
from tests.torture.storms.house import House, NotAnswered

ANSWER_SECONDS = 5.0
"""In which a verb is answered that waits for nothing, on an idle machine."""
MORE_SECONDS = 20.0
"""Beside its time to settle, a cancel may cost: a watchdog's grace, a driver that starts again and takes the run up."""
BEGIN_SECONDS = 3.0
INNOCENT_SECONDS = 60.0
MOST_SECONDS = 120.0
"""However busy the machine is: this long is not a matter of load any more."""
OVER = ("completed", "failed", "cancelled", "killed")

HARMLESS = ("quick", "brief")
TOOLS = (
    *("quick", "brief", "d_work", "d_undo_hangs", "d_undo_fails", "d_undo_returns_anything", "d_sys_exit"),
    *("d_keyboard", "d_os_exit", "d_segv", "d_bad_str", "d_huge", "d_deaf", "d_thread", "d_fork_chain"),
    *("d_double_fork", "t_work", "d_asks", "a_work", "a_swallow", "a_finally", "a_to_thread", "a_anyio"),
    *("a_anyio_abandons", "a_thread", "a_pool", "a_process", "a_terminates", "a_shell", "a_spawn", "a_fork"),
    *("a_later", "a_task", "a_exit_in_child", "a_exit_in_callback", "a_bad_str", "a_cancelled", "a_keyboard"),
    "a_block",
)
RAISED = ("cancelled", "keyboard", "sys_exit", "bad_str", "generator_exit")
MODELS = ("good", "slow", "swallow", *RAISED)
STREAMS = ("slow", "finally", "swallow", *RAISED)
DEEDS = ("os_exit", "block", "swallow", "cancels_a_task", *RAISED)

Act = tuple[str, str]


class Stopped(NamedTuple):
    """A call that a receipt calls stopped or undone, and how much had been written when that was read."""

    key: str
    n: int
    said: str
    written: int


class Run(NamedTuple):
    id: str
    key: str
    acts: tuple[Act, ...]


class Storm:
    """Plays one storm. `wrong` says what was found; `stopped` what may write nothing any more, looked at again."""

    def __init__(self, house: House, seed: int, *, aloud: bool = False) -> None:
        """`aloud`: its story is printed while it is played."""
        self.seed = seed
        self.wrong: list[str] = []
        self.stopped: list[Stopped] = []
        self.story: list[str] = []
        self.set_aside = 0
        """How often the innocent run was, because three drivers in a row were killed that had it in their hands."""
        self._house = house
        self._aloud = aloud
        self._random = random.Random(seed)
        self._runs: list[Run] = []
        self._requests = 0

    def play(self) -> None:
        try:
            self._play()
        except NotAnswered as error:
            self._found(f"not answered: {error}")

    def _play(self) -> None:
        innocent = self._begin([("tool", self._random.choice(HARMLESS)) for _ in range(5)])
        self._runs = [self._begin(self._script()) for _ in range(self._random.randint(1, 4))]
        if self._random.random() < 0.8:
            self._wait_for_tools()
        for _ in range(self._random.randint(5, 15)):
            time.sleep(self._random.uniform(0.0, 0.4))
            self._step()
        began = self._house.ready_seconds
        for run in self._runs:
            self._verb(run, "cancel")
        for run in self._runs:
            self._settled(run, began)
        self._ends(innocent)
        self.look_back()

    def _wait_for_tools(self) -> None:
        """Until a tool of each run has begun, or it has come to its end: a stop is to meet something. Not for long."""
        give_up = time.monotonic() + within(BEGIN_SECONDS)
        for run in self._runs:
            while time.monotonic() < give_up and not self._house.lines(run.key):
                view = self._view(run)
                if view["status"] in OVER or view["waiting"] or run.acts[0][0] != "tool":
                    break
                time.sleep(0.1)

    # -- what is played

    def _script(self) -> list[Act]:
        return [self._act() for _ in range(self._random.randint(1, 4))]

    def _act(self) -> Act:
        kinds = {"tool": TOOLS, "model": MODELS, "stream": STREAMS, "deed": DEEDS}
        (kind,) = self._random.choices(list(kinds), [70, 10, 8, 12])
        return kind, self._random.choice(kinds[kind])

    def _begin(self, acts: list[Act]) -> Run:
        while True:
            key = f"s{self.seed}-{os.urandom(4).hex()}"
            goal = json.dumps({"key": key, "acts": acts})
            answer = self._house.start("player", goal, key)
            if answer.status == 201:
                self._tell(f"begins {answer.body['id']} {key} {acts}")
                return Run(str(answer.body["id"]), key, tuple(acts))
            if answer.body.get("code") != "agents_loading":
                self._found(f"a run was not begun: {answer}")

    def _step(self) -> None:
        run = self._random.choice(self._runs)
        steps: dict[Callable[[Run], object], float] = {
            lambda run: self._verb(run, "pause"): 14,
            lambda run: self._verb(run, "resume", instruction="Go on."): 14,
            lambda run: self._verb(run, "redirect", instruction="Do something else."): 5,
            lambda run: self._verb(run, "cancel", undo=self._random.choice(["open", "none", "all"])): 14,
            lambda run: self._verb(run, "ask", question="How far are you?"): 3,
            lambda run: self._verb(run, "reason", reason="wrong direction"): 3,
            self._decide: 10,
            self._abort: 8,
            self._halt: 3,
            self._type: 1.5,
            self._kill_driver: 1.5,
            self._freeze_driver: 1.5,
            self._kill_worker: 3,
            self._kill_front: 0.7,
        }
        if self._house.has_clock:
            steps[self._jump] = 8
        (step,) = self._random.choices(list(steps), list(steps.values()))
        step(run)

    def _verb(self, run: Run, verb: str, **body: Any) -> Answer:
        self._requests += 1
        more: dict[str, Any] = {} if verb == "reason" else {"wait": 0, "request_id": f"{run.key}-{self._requests}"}
        return self._ask(f"/api/runs/{run.id}/{verb}", {**body, **more})

    def _ask(self, path: str, body: dict[str, Any]) -> Answer:
        answer = self._house.ask("POST", path, body)
        self._tell(f"{path} {body} -> {answer.status} {str(answer.body)[:150]} in {answer.seconds:.2f} s")
        if answer.status >= 500 or answer.status == 422:  # nothing that is asked here is malformed
            self._found(f"{path} {body} was answered with {answer.status}: {answer.body}")
        if answer.seconds > min(within(ANSWER_SECONDS), MOST_SECONDS / 4):
            self._found(f"{path} {body} was answered after {answer.seconds:.1f} s")
        return answer

    def _view(self, run: Run) -> dict[str, Any]:
        answer = self._house.ask("GET", f"/api/runs/{run.id}")
        if answer.status != 200:
            self._found(f"{run.id} cannot be seen: {answer}")
            raise NotAnswered(str(answer))
        return dict(answer.body)

    def _decide(self, run: Run) -> None:
        """Answer what the run waits for: an approval, or a doubt."""
        view = self._view(run)
        for asked in view["approvals"]:
            self._ask(f"/api/runs/{run.id}/calls/{asked['call']}/{self._random.choice(['approve', 'deny'])}", {})
        for doubt in view["doubts"]:
            answer = self._random.choice(["happened", "did_not_happen", "undo"])
            self._ask(f"/api/runs/{run.id}/calls/{doubt['call']}/resolve", {"outcome": answer})

    def _abort(self, run: Run) -> None:
        for call in self._view(run)["calls"]:
            if call["now"] == "running":
                self._ask(f"/api/runs/{run.id}/calls/{call['id']}/abort", {"wait": 0})

    def _halt(self, run: Run) -> None:
        self._ask("/api/halt", {"scope": "run", "name": run.id, "wait": 0})

    def _type(self, run: Run) -> None:
        code = self._house.command("cancel", run.id, "--wait", "0")
        self._tell(f"typed: cancel {run.id} -> {code}")
        if code not in (0, 1, 2, 3):
            self._found(f"`checkrein cancel` ended with {code}")

    # -- what happens to processes

    def _kill_driver(self, run: Run) -> None:
        for driver in self._house.drivers()[:1]:
            self._tell(f"kill -9 of driver {driver}")
            self._signal(driver, signal.SIGKILL)

    def _freeze_driver(self, run: Run) -> None:
        for driver in self._house.drivers()[-1:]:
            seconds = self._random.uniform(0.2, 6.0)
            self._tell(f"driver {driver} stands still for {seconds:.1f} s")
            self._signal(driver, signal.SIGSTOP)
            time.sleep(seconds)
            self._signal(driver, signal.SIGCONT)

    def _kill_worker(self, run: Run) -> None:
        """One in which a tool of this run is at work, by the tool's own word; a driver where it runs there."""
        own = [int(word.split()[1]) for _, word in self._house.lines(run.key) if word.startswith("begin ")]
        for worker in set(own[-1:]):
            self._tell(f"kill -9 of {worker}, in which a tool of {run.id} was at work")
            self._signal(worker, signal.SIGKILL)

    def _kill_front(self, run: Run) -> None:
        self._tell("kill -9 of the front")
        self._house.kill_front()

    def _jump(self, run: Run) -> None:
        seconds = self._random.choice([-3600, 0, 3600])
        self._tell(f"the clock jumps to {seconds:+d} s")
        self._house.jump(seconds)

    def _signal(self, pid: int, number: signal.Signals) -> None:
        if number is signal.SIGKILL:
            self._house.killed.add(pid)
        with suppress(OSError):
            os.kill(pid, number)

    # -- what is looked at

    def _settled(self, run: Run, began: float) -> None:
        """Wait until the run is over, as long as a cancel may take. Only time counts in which a driver was ready."""
        limit = SETTLE_SECONDS + min(within(MORE_SECONDS), MOST_SECONDS)
        view = self._view(run)
        while view["status"] not in OVER:
            if self._house.ready_seconds - began > limit:
                return self._found(f"{run.id} {run.acts} is {view['status']} and does not settle: {_short(view)}")
            time.sleep(0.2)
            view = self._view(run)
        written = self._house.written()
        # Written down before it is judged: a call that was started again by somebody is another line of the log.
        number_of = {call["id"]: call["arguments"]["n"] for call in view["calls"] if call["kind"] == "tool"}
        for receipt in view["receipts"]:
            if receipt["verb"] != "cancel":
                continue
            said = [(call["id"], call["now"]) for call in receipt["calls"] if call["now"] in ("aborted", "killed")]
            said += [(effect["id"], "undone") for effect in receipt["effects"] if effect["now"] == "undone"]
            for call, word in said:
                if call in number_of:
                    self.stopped.append(Stopped(run.key, number_of[call], f"{run.id} {call} {word}", written))
        self._tell(f"{run.id} is {view['status']}: {[(call['name'], call['now']) for call in view['calls']]}")

    def _ends(self, run: Run) -> None:
        began, answered = self._house.ready_seconds, set[int]()
        view = self._view(run)
        while view["status"] not in OVER:
            if self._house.ready_seconds - began > INNOCENT_SECONDS + min(within(MORE_SECONDS), MOST_SECONDS):
                return self._found(f"the innocent {run.id} does not end: {_short(view)}")
            for doubt in view["doubts"]:
                answered |= {call["arguments"]["n"] for call in view["calls"] if call["id"] == doubt["call"]}
                self._ask(f"/api/runs/{run.id}/calls/{doubt['call']}/resolve", {"outcome": "happened"})
            kinds = {waiting["kind"] for waiting in view["waiting"]}
            if kinds - {"in_doubt", "driver_died"}:
                return self._found(f"the innocent {run.id} waits for a person: {view['waiting']}")
            if "driver_died" in kinds:
                # Three drivers were killed with it in their hands. Which run was to blame nobody can know: it is asked.
                self.set_aside += 1
                self._verb(run, "resume")
            time.sleep(0.2)
            view = self._view(run)
        if view["status"] != "completed":
            self._found(f"the innocent {run.id} is {view['status']}: {_short(view)}")
        failed = [call for call in view["calls"] if call["now"] == "failed" and call["kind"] == "tool"]
        words = self._house.lines(run.key)
        for call in failed:
            # A storm kills the worker in which a tool was at work: it may serve the innocent by then, or be about to.
            n = call["arguments"]["n"]
            own = {int(word.split()[1]) for number, word in words if number == n and word.startswith("begin ")}
            if "was ended by SIGKILL" in call["error"] and own <= self._house.killed and self._house.killed:
                answered.add(n)
            else:
                self._found(f"a call of the innocent {run.id} has failed: {_short(view)}")
        for n in range(len(run.acts)):
            began_times = sum(word.startswith("begin") for number, word in words if number == n)
            if began_times > 1 or (began_times == 0 and n not in answered):
                self._found(f"call {n} of the innocent {run.id} was made {began_times} times: {_short(view)}")
        return None

    def look_back(self) -> None:
        """Whether anything that was stopped has written a line since."""
        for one in list(self.stopped):
            since = [word for n, word in self._house.lines(one.key, one.written) if n == one.n]
            if not one.said.endswith("undone"):  # a person may have asked for its undo since
                since = [word for word in since if word != "undo"]
            if since:
                self.stopped.remove(one)
                self._found(f"{one.said}, and wrote {len(since)} lines afterwards: {sorted(set(since))[:5]}")

    def _found(self, what: str) -> None:
        self.wrong.append(what)
        self._tell(f"WRONG: {what}")

    def _tell(self, what: str) -> None:
        self.story.append(what)
        if self._aloud:
            print(f"storm {self.seed}: {what}", flush=True)


def _short(view: dict[str, Any]) -> str:
    calls = [(call["id"], call["name"], call["now"], *filter(None, [call.get("error")])) for call in view["calls"]]
    return f"{calls} waiting={view['waiting']} doubts={len(view['doubts'])} error={view['error']}"
