"""Tools of a program that asks before each of them: a stand-in that speaks the hook protocol of Claude Code to the
letter. The witnesses are the log of its tool and that of the provider."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from checkrein.calls.base import CallRequest
from checkrein.exec import hook_main
from checkrein.exec.hook_settings import with_hook
from checkrein.exec.tool_hook import ToolHook
from checkrein.processes import table
from checkrein.testing.provider import Provider, Reply
from tests.cli.shell import Done, Shell, Started, until
from tests.cli.test_exec import TICKS as SCRIPT
from tests.cli.test_exec import none_left

pytestmark = pytest.mark.anyio

CLAUDE = """#!{python}
import json, os, subprocess, sys
from anthropic import Anthropic

# As Claude Code: --settings is a file or JSON, the last one counts, each hook command goes to a shell with the event on
# its standard input; exit 2 and a decision "deny" refuse, anything else but 0 is a mistake of the hook and goes on.
given = [sys.argv[n + 1] for n, word in enumerate(sys.argv) if word == "--settings"][-1]
hooks = json.loads(given if given.startswith("{{") else open(given).read())["hooks"]["PreToolUse"]

def permitted(use):
    event = {{
        "session_id": "s-1", "transcript_path": "/dev/null", "cwd": os.getcwd(), "permission_mode": "default",
        "hook_event_name": "PreToolUse", "tool_name": use.name, "tool_input": use.input, "tool_use_id": use.id,
    }}
    given = use.input
    for hook in [hook for matcher in hooks if matcher["matcher"] == "*" for hook in matcher["hooks"]]:
        done = subprocess.run(hook["command"], shell=True, input=json.dumps(event), text=True, capture_output=True)
        if done.returncode == 2:
            return None, done.stderr
        said = json.loads(done.stdout).get("hookSpecificOutput", {{}}) if done.returncode == 0 and done.stdout else {{}}
        if said.get("permissionDecision") == "deny":
            return None, said["permissionDecisionReason"]
        given = said.get("updatedInput", given)
    return given, ""

def used(use):
    given, why = permitted(use)
    if given is None:
        return why, True
    if use.name == "WebFetch":
        exec(given["script"], {{}})  # in its own process
        return "fetched", False
    done = subprocess.run(given["command"], shell=True, text=True, capture_output=True)
    return f"exit code {{done.returncode}}: {{done.stdout}}", done.returncode != 0

messages = [{{"role": "user", "content": "Go."}}]
client = Anthropic(max_retries=0)
tools = [{{"name": "Bash", "description": "A shell.", "input_schema": {{"type": "object"}}}}]
while True:
    ask = {{"model": "claude-sonnet-4-5", "max_tokens": 1000, "messages": messages, "tools": tools}}
    with client.messages.stream(**ask) as stream:
        answer = stream.get_final_message()
    said = [block.model_dump(exclude_none=True) for block in answer.content]
    messages.append({{"role": "assistant", "content": said}})
    uses = [block for block in answer.content if block.type == "tool_use"]
    if not uses:
        break
    results = [(use.id, *used(use)) for use in uses]
    messages.append({{"role": "user", "content": [
        {{"type": "tool_result", "tool_use_id": id, "content": text, "is_error": is_error}}
        for id, text, is_error in results
    ]}})
"""
TICKS = (
    f"{sys.executable} -c 'import os, sys, time\n"
    'note = lambda word: open(os.environ["WITNESS"], "a").write(f"{time.time()} {os.getpid()} {word}\\n")\n'
    'note("begun")\n'
    'while not os.path.exists(os.environ["WITNESS"] + ".go"): note("tick"); time.sleep(0.03)\n'
    'note("ended")\''
)
KEY = "sk-ant-test-0123456789abcdefghij"


@pytest.fixture
async def provider() -> AsyncIterator[Provider]:
    replies = [Reply("I will look.", calls=[("Bash", {"command": TICKS})]), Reply("Done.")]
    async with Provider(replies, key=KEY) as provider:
        yield provider


@pytest.fixture
def claude(shell: Shell) -> Path:
    file = shell.folder / "claude"
    file.write_text(CLAUDE.format(python=sys.executable))
    file.chmod(0o755)
    return file


def start(shell: Shell, provider: Provider, *options: str) -> Started:
    variables = {"ANTHROPIC_BASE_URL": provider.anthropic_url, "ANTHROPIC_API_KEY": KEY}
    return shell.start("exec", *options, "--", "./claude", **variables)


async def do(shell: Shell, *arguments: str) -> Done:
    return await asyncio.to_thread(shell.say, *arguments)


async def ended(started: Started) -> int:
    return await asyncio.to_thread(started.wait)


async def saw(shell: Shell, word: str) -> None:
    await asyncio.to_thread(shell.saw, word)


async def recorded(shell: Shell) -> list[dict[str, Any]]:
    return [line["event"] for line in (await do(shell, "export", "last")).json if "event" in line]


def told(provider: Provider) -> str:
    """What the model was told came of its tool."""
    return json.dumps(provider.log[1].messages[-1])


@pytest.mark.usefixtures("claude")
async def test_each_tool_is_permitted_in_the_journal_before_it_begins(shell: Shell, provider: Provider) -> None:
    """D3: and it is over when its result goes to the model."""
    started = start(shell, provider)
    await saw(shell, "begun")
    (shell.folder / "log.go").touch()

    assert await ended(started) == 0, started.text
    events = await recorded(shell)
    (permit,) = [one for one in events if one["type"] == "call.started" and one.get("name") == "Bash"]
    (over,) = [one for one in events if one["type"] == "call.finished" and one["call"] == permit["call"]]
    begun = float(shell.log.read_text().split()[0])
    assert permit["kind"] == "tool"
    assert TICKS in permit["arguments"]["command"]
    assert permit["at"] < begun < over["at"]
    assert over["outcome"] == "completed"
    assert "exit code 0" in over["result"]


@pytest.mark.usefixtures("claude")
async def test_a_tool_that_wants_approval_begins_when_a_person_has_approved_it(
    shell: Shell, provider: Provider
) -> None:
    started = start(shell, provider, "--approve", "bash")
    await asyncio.to_thread(started.until, "Bash")

    assert shell.words() == []
    (shell.folder / "log.go").touch()
    done = await do(shell, "approve", "last", "Bash")

    assert done.code == 0, done.err
    assert await ended(started) == 0, started.text
    assert shell.words()[0] == "begun"
    assert "exit code 0" in told(provider)


@pytest.mark.usefixtures("claude")
async def test_it_is_used_with_the_arguments_that_a_person_wants_instead(shell: Shell, provider: Provider) -> None:
    started = start(shell, provider, "--approve", "B*")
    await asyncio.to_thread(started.until, "Bash")

    done = await do(shell, "approve", "last", "Bash", "--arguments", '{"command": "echo instead"}')

    assert done.code == 0, done.err
    assert await ended(started) == 0, started.text
    assert "exit code 0: instead" in told(provider)
    assert shell.words() == []


@pytest.mark.usefixtures("claude")
async def test_a_refusal_reaches_the_model_in_the_words_of_the_person(shell: Shell, provider: Provider) -> None:
    started = start(shell, provider, "--approve", "Bash")
    await asyncio.to_thread(started.until, "Bash")

    assert (await do(shell, "deny", "last", "Bash", "--note", "Never on a Friday.")).code == 0

    assert await ended(started) == 0, started.text
    assert "Never on a Friday." in told(provider)
    assert shell.words() == []


@pytest.mark.usefixtures("claude")
async def test_a_cancel_while_a_person_is_asked_leaves_nothing_that_could_begin(
    shell: Shell, provider: Provider
) -> None:
    """D2 D3"""
    started = start(shell, provider, "--approve", "Bash")
    await asyncio.to_thread(started.until, "Bash")

    assert (await do(shell, "cancel", "last")).code == 0

    assert await ended(started) == 3
    assert shell.words() == []
    assert len(provider.log) == 1


@pytest.mark.usefixtures("claude")
async def test_a_redirect_ends_the_tool_that_is_at_work_and_the_program_goes_on(
    shell: Shell, provider: Provider
) -> None:
    """D21 D22: what it had begun before lives on; the instruction goes with its next request."""
    started = start(shell, provider)
    await saw(shell, "tick")

    done = await do(shell, "redirect", "last", "Only Q3, please.")

    assert done.code == 0, done.err
    assert "killed" in done.out
    await asyncio.to_thread(none_left, shell)
    assert await ended(started) == 0, started.text
    assert "Only Q3, please." in json.dumps(provider.log[1].messages)
    assert "exit code" in json.dumps(provider.log[1].messages)


@pytest.mark.usefixtures("claude")
@pytest.mark.parametrize("verb", ["redirect", "cancel"])
async def test_a_tool_inside_of_the_program_is_said_to_be_killed_only_where_the_program_is(
    shell: Shell, verb: str
) -> None:
    """D4: its own log is the witness that a redirect has not stopped it."""
    replies = [Reply("I will look.", calls=[("WebFetch", {"script": SCRIPT})]), Reply("Done.")]
    async with Provider(replies, key=KEY) as provider:
        started = start(shell, provider)
        await saw(shell, "tick")

        done = await do(shell, verb, "last", *(["Only Q3, please."] if verb == "redirect" else []))

        assert done.code == 0, done.err
        if verb == "redirect":
            before = shell.words().count("tick")
            await asyncio.to_thread(until, lambda: shell.words().count("tick") > before)
            (shell.folder / "log.go").touch()
        else:
            await asyncio.to_thread(none_left, shell)
        assert await ended(started) == (0 if verb == "redirect" else 3), started.text
    events = await recorded(shell)
    (tool,) = [one["call"] for one in events if one["type"] == "call.started" and one.get("name") == "WebFetch"]
    (over,) = [one for one in events if one["type"] == "call.finished" and one["call"] == tool]
    assert over["outcome"] == ("detached" if verb == "redirect" else "killed")


@pytest.mark.usefixtures("claude")
@pytest.mark.parametrize("how", ["freeze", "soft"])
async def test_a_pause_freezes_the_tool_or_waits_for_it(shell: Shell, provider: Provider, how: str) -> None:
    """D1 D20"""
    started = start(shell, provider, "--pause", how)
    await saw(shell, "tick")

    if how == "soft":
        pausing = asyncio.ensure_future(do(shell, "pause", "last"))
        await asyncio.to_thread(started.until, "Bash to finish")
        (shell.folder / "log.go").touch()
        assert (await pausing).code == 0
        assert shell.words()[-1] == "ended"
    else:
        assert (await do(shell, "pause", "last")).code == 0
        (shell.folder / "log.go").touch()
        assert shell.words()[-1] == "tick"
    assert len(provider.log) == 1, "its next request is held"
    assert (await do(shell, "resume", "last")).code == 0

    assert await ended(started) == 0, started.text
    assert len(provider.log) == 2


async def test_settings_of_its_own_are_kept_beside_the_hook(shell: Shell, provider: Provider, claude: Path) -> None:
    own = {"matcher": "*", "hooks": [{"type": "command", "command": "echo own >> own.log"}]}
    variables = {"ANTHROPIC_BASE_URL": provider.anthropic_url, "ANTHROPIC_API_KEY": KEY}
    (shell.folder / "log.go").touch()

    settings = json.dumps({"hooks": {"PreToolUse": [own]}})
    done = await asyncio.to_thread(shell.do, "exec", "--", "./claude", "--settings", settings, **variables)

    assert done.code == 0, done.err
    assert (shell.folder / "own.log").read_text() == "own\n"
    assert "Bash" in [one.get("name") for one in await recorded(shell)]


def test_a_hook_that_reaches_nobody_refuses(tmp_path: Path) -> None:
    """Exit 2 is what the program takes for a refusal; with any other it would go on."""
    for address in ("http://127.0.0.1:1/checkrein-x/hook", "nonsense", ""):
        (tmp_path / "hook").write_text(address)
        command = [sys.executable, "-I", "-S", hook_main.__file__, str(tmp_path / "hook")]
        done = subprocess.run(command, input="{}", capture_output=True, text=True, check=False)

        assert done.returncode == 2
        assert "has not permitted it" in done.stderr
        assert done.stdout == ""


def hook_line(folder: Path, *, at: str) -> str:
    """What the program is told to start before each of its tools."""
    settings = json.loads(Path(with_hook(["claude"], "--settings", at, folder)[2]).read_text())
    line: str = settings["hooks"]["PreToolUse"][0]["hooks"][0]["command"]
    return line


@pytest.mark.parametrize("who", ["hook", "shell", "both"])
def test_a_hook_that_is_ended_refuses_and_asks_no_more(tmp_path: Path, who: str) -> None:
    """Whoever of the two is told to end; the connection over which it asks is closed, which withdraws the question."""
    with socket.create_server(("127.0.0.1", 0)) as gateway:
        gateway.settimeout(60)
        line = hook_line(tmp_path, at=f"http://127.0.0.1:{gateway.getsockname()[1]}/x/hook")
        shell = subprocess.Popen(["sh", "-c", line], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert shell.stdin is not None
        shell.stdin.write(b'{"tool_name": "Bash"}')
        shell.stdin.close()
        connection, _ = gateway.accept()
        with connection:
            connection.settimeout(60)
            asked = b""
            while b"Bash" not in asked:
                part = connection.recv(65536)
                assert part, "what the program is about to do is what is asked"
                asked += part
            (hook,) = [one.pid for one in table.children(shell.pid)]
            for pid in {"hook": [hook], "shell": [shell.pid], "both": [hook, shell.pid]}[who]:
                os.kill(pid, signal.SIGTERM)

            assert shell.wait(60) == 2
            assert connection.recv(1) == b""
        assert shell.stdout is not None
        assert shell.stdout.read() == b""
        shell.stdout.close()


@pytest.mark.parametrize("how", ["no interpreter", "a crash"])
def test_a_hook_that_cannot_run_refuses(tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    crashing = tmp_path / "crashes.py"
    crashing.write_text("raise RuntimeError")
    if how == "a crash":
        monkeypatch.setattr(hook_main, "__file__", str(crashing))
    else:
        monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))

    done = subprocess.run(["sh", "-c", hook_line(tmp_path, at="x")], input=b"{}", capture_output=True, check=False)

    assert (done.returncode, done.stdout) == (2, b"")


async def test_a_tool_keeps_its_place_when_its_arguments_are_changed_after_another_has_asked() -> None:
    requests: list[CallRequest] = []
    both_asked = asyncio.Event()

    class Asked:
        async def call(self, request: CallRequest) -> None:
            requests.append(request)
            await both_asked.wait()

    async def end_since(moment: float) -> bool:
        return False

    driver: Any = Asked()
    hook = ToolHook(driver, ["Bash"], end_since=end_since)
    asking = [asyncio.ensure_future(hook.ask(b'{"tool_name": "Bash"}')) for _ in range(2)]
    async with asyncio.timeout(60):
        while len(requests) < 2:
            await asyncio.sleep(0)
    first, second = requests
    assert first.revise is not None
    revised = first.revise(b'{"command": "ls"}')
    both_asked.set()
    await asyncio.gather(*asking)

    assert revised.place == first.place != second.place


def test_approvals_are_refused_for_a_program_that_asks_nobody(shell: Shell) -> None:
    done = shell.say("exec", "--approve", "Bash", "--", "sh", "-c", "true")

    assert done.code == 2
    assert "error[asks_nobody]" in done.err
    assert len(done.err.splitlines()) == 1
