"""A real agent under `checkrein exec`, a provider that plays its model, and witnesses that are neither.

The witnesses: the provider's own log, what the agent's command writes itself, and the process table.
"""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from checkrein.testing.provider import Provider, Reply, Request, runs_command
from checkrein.testing.provider.shell import THOUGHT, thinks
from tests.cli.conftest import shell
from tests.cli.shell import Done, Shell, Started
from tests.real_agents.programs import Agent, chosen
from tests.support.patience import PATIENCE_SECONDS

__all__ = ["shell"]

KEY: Final = "sk-test-0123456789abcdefghij0123456789"
GOAL: Final = "Please count the brown cows."
LONG: Final = " ".join(f"word{n}" for n in range(1, 2000))
REST: Final = "and-that-is-the-rest."
"""One token, so that no line of ours comes in between."""
TASK: Final = "Look behind the barn for me."
INSTRUCTION: Final = "Only the black sheep, please."
MARK: Final = "CHECKREIN_TEST_AGENT"
OURS: Final = (b"supervisor_main", b"launch_main", b"checkrein.calls.workers")
"""How processes of Checkrein itself are called."""

TICKS: Final = """
echo "$(date +%s.%N) $$ begun" >> {log}
while [ ! -e {log}.go ]; do echo "$(date +%s.%N) $$ tick" >> {log}; sleep 0.05; done
echo "$(date +%s.%N) $$ ended" >> {log}
"""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "agent" in metafunc.fixturenames:
        agents = chosen()
        metafunc.parametrize("agent", agents, ids=[agent.name for agent in agents])


class Scene:
    """One agent at work, and everybody who saw it."""

    def __init__(self, agent: Agent, shell: Shell, provider: Provider, started: Started, mark: str) -> None:
        self.agent = agent
        self.shell = shell
        self.provider = provider
        self.started = started
        self._mark = mark

    # -- what the provider saw

    def asked(self) -> list[Request]:
        """The requests of the main conversation."""
        return [request for request in self.provider.log if is_main(request)]

    async def in_mid_answer(self) -> None:
        """Some words of the long answer have left the provider; or it is being waited for, where nothing streams."""

        def holds(log: list[Request]) -> bool:
            return any(is_main(one) and (one.tokens_sent >= 5 or not one.stream) for one in log)

        await self.provider.until(holds, timeout=PATIENCE_SECONDS)

    async def asks_nothing(self) -> bool:
        """Whether no request comes, as far as a short wait can tell."""
        before = len(self.provider.log)
        await asyncio.sleep(1.0)
        return len(self.provider.log) == before

    # -- what the command wrote

    def words(self, word: str) -> int:
        return self.shell.words().count(word)

    async def in_command(self) -> None:
        await self.until(lambda: self.words("tick") >= 2)

    async def ticks_on(self) -> None:
        before = self.words("tick")
        await self.until(lambda: self.words("tick") > before + 1)

    async def is_quiet(self) -> bool:
        before = self.words("tick")
        await asyncio.sleep(0.5)
        return self.words("tick") == before

    def let_command_end(self) -> None:
        Path(f"{self.shell.log}.go").touch()

    # -- what the process table says

    def processes(self) -> dict[int, str]:
        """The agent and all that it has started, by the state that each is in. Ours are not among them."""
        found = {}
        for pid in (int(name) for name in os.listdir("/proc") if name.isdigit()):
            try:
                environment = Path(f"/proc/{pid}/environ").read_bytes()
                state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
                command = Path(f"/proc/{pid}/cmdline").read_bytes()
            except OSError:
                continue
            is_ours = pid == self.started.process.pid or any(one in command for one in OURS)
            if self._mark.encode() in environment and not is_ours and state not in "ZX":
                found[pid] = state
        return found

    def leader(self) -> int:
        """The process that the agent was started as: the one that ours has for a child."""
        parents = {pid: _parent(pid) for pid in self.processes()}
        return next(pid for pid, parent in parents.items() if parent == self.started.process.pid)

    async def none_left(self) -> None:
        await self.until(lambda: not self.processes())

    # -- what a person does

    async def do(self, *arguments: str) -> Done:
        return await asyncio.to_thread(self.shell.do, *arguments)

    async def until(self, holds: Callable[[], Any]) -> None:
        give_up = asyncio.get_running_loop().time() + PATIENCE_SECONDS
        while not holds():
            assert asyncio.get_running_loop().time() < give_up, f"not in time; it said:\n{self.started.text[-2000:]}"
            await asyncio.sleep(0.02)

    async def ended(self) -> int:
        return await asyncio.to_thread(self.started.wait)


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


BESIDE: Final = (b"managed memory extraction subagent",)
"""What models are told in requests that offer tools, know the goal, and are beside the main conversation all the same:
qwen's for what is worth to be remembered."""


def is_main(request: Request) -> bool:
    """Whether a request belongs to the conversation about the goal: it offers tools, which titles do not."""
    sent = bytes(request.raw)
    return GOAL.encode() in sent and bool(request.body.get("tools")) and not any(one in sent for one in BESIDE)


def last(agent: Agent, text: str) -> Reply:
    """An answer after which the agent has nothing more to do."""
    return Reply(text, calls=[agent.last_call] if agent.last_call else [])


def says(agent: Agent) -> Callable[[Request], Reply | str]:
    """A long answer, slowly; the rest of it at once, where half of it is sent back or the person has said something."""

    def choose(request: Request) -> Reply | str:
        if not is_main(request):
            return "A title."
        sent = bytes(request.raw)
        if b"word1 word2" in sent or INSTRUCTION.encode() in sent or (not request.stream and not is_first(request)):
            return last(agent, REST)
        return Reply(LONG, tokens_per_second=20) if request.stream else Reply("never", first_byte_after=600)

    asked: list[int] = []

    def is_first(request: Request) -> bool:
        asked.append(request.number)
        return request.number == asked[0]

    return choose


def runs(agent: Agent, command: str) -> Callable[[Request], Any]:
    """A command, and then a last answer."""
    then = last(agent, REST)
    shell = runs_command(command, then)
    return lambda request: shell(request) if is_main(request) else "A title."


def is_of_sub_agent(request: Request) -> bool:
    sent = bytes(request.raw)
    return TASK.encode() in sent and GOAL.encode() not in sent and bool(request.body.get("tools"))


def hands_over(agent: Agent) -> Callable[[Request], Reply | str]:
    """A task for a sub-agent, a long answer from that, and then a last answer."""
    assert agent.sub_agent is not None
    name, arguments = agent.sub_agent

    def choose(request: Request) -> Reply | str:
        sent = bytes(request.raw)
        if is_of_sub_agent(request):
            return "The sub-agent is done." if b"word1 word2" in sent else Reply(LONG, tokens_per_second=20)
        if not is_main(request):
            return "A title."
        if TASK.encode() in sent:
            return last(agent, REST)
        return Reply(thinking=THOUGHT if thinks(request) else "", calls=[(name, arguments | {"prompt": TASK})])

    return choose


@asynccontextmanager
async def at_work(agent: Agent, shell: Shell, script: Any, *options: str) -> AsyncIterator[Scene]:
    """The agent, asked for the goal. When this ends, nothing of it is left, whatever happened."""
    if not (agent.folder / ".installed").exists():
        pytest.skip(f"{agent.name} is not installed: make test-agents installs it")
    home, work = shell.folder / "home", shell.folder
    for name, text in agent.files.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(text)
    home.mkdir(exist_ok=True)
    mark = f"{MARK}={uuid.uuid4().hex}"
    async with Provider(script, key=KEY) as provider:
        variables = {name: value.replace("{key}", KEY) for name, value in agent.variables.items()}
        variables |= dict([mark.split("=")]) | {
            "HOME": str(home),
            "OPENAI_BASE_URL": provider.openai_url,
            "ANTHROPIC_BASE_URL": provider.anthropic_url,
            "GOOGLE_GEMINI_BASE_URL": provider.gemini_url,
            **{f"{name}_API_KEY": KEY for name in ("OPENAI", "ANTHROPIC", "GEMINI")},
        }
        started = shell.start("exec", *options, "--", *agent.command(GOAL), **variables)
        scene = Scene(agent, shell, provider, started, mark)
        try:
            yield scene
        finally:
            if started.process.poll() is None:
                await scene.do("cancel", "last")
                started.process.kill()
            print(f"\n{agent.name}, in {work}: {[(one.number, one.how) for one in provider.log]}")


@pytest.fixture
def command(shell: Shell) -> str:
    """A command that ticks until it may end."""
    file = shell.folder / "tick.sh"
    file.write_text(TICKS.format(log=shell.log))
    return f"sh {file}"
