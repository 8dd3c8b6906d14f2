"""A program that brings a shell is asked to use it, whatever it calls it."""

from __future__ import annotations

import pytest

from checkrein.testing.provider import Provider, runs_command

pytestmark = pytest.mark.anyio

SCHEMA = {"type": "object", "properties": {"command": {"type": "string"}, "why": {}}, "required": ["command", "why"]}
TOOL = {"type": "function", "function": {"name": "Bash", "parameters": SCHEMA}}
ASK = {"model": "gpt-5", "messages": [{"role": "user", "content": "Hello?"}]}


async def test_the_command_is_asked_for_where_a_shell_is_offered_and_only_once(openai, anthropic):
    async with Provider(runs_command("echo hi", "Done.")) as provider:
        plain = await openai(provider).chat.completions.create(**ASK)
        asked = await openai(provider).chat.completions.create(**ASK, tools=[TOOL])
        message = asked.choices[0].message
        result = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "hi"}
        history = [*ASK["messages"], message.model_dump(exclude_none=True), result]
        after = await openai(provider).chat.completions.create(model="gpt-5", messages=history, tools=[TOOL])
        of_anthropic = await anthropic(provider).messages.create(
            model="claude-haiku-4-5",
            max_tokens=100,
            messages=ASK["messages"],
            tools=[{"name": "bash", "input_schema": SCHEMA}],
        )

    assert plain.choices[0].message.content == after.choices[0].message.content == "Done."
    assert message.tool_calls[0].function.arguments == '{"why": "a command", "command": "echo hi"}'
    assert of_anthropic.content[0].input["command"] == "echo hi"


async def test_where_thinking_is_switched_on_the_call_comes_after_a_thought(anthropic):
    """Without one the provider would refuse the result of the call, as the real one does."""
    tools = [{"name": "bash", "input_schema": SCHEMA}]
    ask = {"model": "claude-haiku-4-5", "max_tokens": 2000, "thinking": {"type": "enabled", "budget_tokens": 1024}}
    async with Provider(runs_command("echo hi", "Done.")) as provider:
        asked = await anthropic(provider).messages.create(**ask, messages=ASK["messages"], tools=tools)
        result = {"type": "tool_result", "tool_use_id": asked.content[1].id, "content": "hi"}
        history = [*ASK["messages"], {"role": "assistant", "content": asked.content}]
        history.append({"role": "user", "content": [result]})
        after = await anthropic(provider).messages.create(**ask, messages=history, tools=tools)

    assert [block.type for block in asked.content] == ["thinking", "tool_use"]
    assert after.content[-1].text == "Done."


async def test_anthropic_counts_tokens_without_asking_a_model(anthropic):
    async with Provider("Fine.") as provider:
        counted = await anthropic(provider).messages.count_tokens(model="claude-haiku-4-5", messages=ASK["messages"])

        assert counted.input_tokens > 0
        assert provider.log == []
