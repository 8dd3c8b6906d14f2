"""The peer of `wire_steps`: the same agent as a graph of LangGraph, every step in its SQLite saver before the next.

PYTHON_OF_PEERS bench/langgraph_steps.py URL KEY STORE STEPS CLIENT

It makes a whole run for every line on its standard input and prints what that took as a line of JSON. It needs nothing
of Checkrein. Messages are the plain dictionaries of the wire, and the nodes plain functions, because that costs
LangGraph the least. CLIENT is `openai`, or `bare`: the standard library's HTTP, so that what is left is LangGraph.
"""

from __future__ import annotations

import http.client
import json
import operator
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator
from typing import Annotated, Any, TypedDict
from urllib.parse import urlsplit

from langgraph.checkpoint.sqlite import SqliteSaver  # type: ignore[import-not-found]
from langgraph.graph import END, START, StateGraph

Message = dict[str, Any]
Chat = Callable[[list[Message]], Iterator[Any]]
"""Asks the model, and yields the deltas of its answer as dictionaries."""

MODEL = "gpt-4o"
PARAMETERS = {"type": "object", "properties": {}, "additionalProperties": False}
FUNCTION = {"name": "nothing", "description": "Does nothing, on the event loop.", "parameters": PARAMETERS}
OPTIONS: Message = {
    "model": MODEL,
    "stream": True,
    "stream_options": {"include_usage": True},
    "tools": [{"type": "function", "function": FUNCTION}],
}


class State(TypedDict):
    messages: Annotated[list[Message], operator.add]


def with_openai(url: str, key: str) -> Chat:
    from openai import OpenAI

    create: Any = OpenAI(base_url=url, api_key=key).chat.completions.create

    def chat(messages: list[Message]) -> Iterator[Message]:
        for chunk in create(messages=messages, **OPTIONS):
            if chunk.choices:
                yield chunk.choices[0].delta.model_dump(exclude_none=True)

    return chat


def bare(url: str, key: str) -> Chat:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.netloc)
    headers = {"content-type": "application/json", "authorization": f"Bearer {key}"}

    def chat(messages: list[Message]) -> Iterator[Message]:
        body = json.dumps({**OPTIONS, "messages": messages})
        connection.request("POST", f"{parts.path}/chat/completions", body, headers)
        for line in connection.getresponse().read().splitlines():
            if line.startswith(b"data: {"):
                for choice in json.loads(line[6:])["choices"]:
                    yield choice["delta"]

    return chat


def collected(deltas: Iterator[Message]) -> Message:
    """One message of the assistant."""
    text, calls = "", list[Message]()
    for delta in deltas:
        text += delta.get("content") or ""
        for piece in delta.get("tool_calls") or ():
            if piece["index"] == len(calls):
                function = {"name": piece["function"]["name"], "arguments": ""}
                calls.append({"id": piece["id"], "type": "function", "function": function})
            calls[piece["index"]]["function"]["arguments"] += piece["function"].get("arguments") or ""
    message: Message = {"role": "assistant", "content": text or None}
    return message | {"tool_calls": calls} if calls else message


def make_graph(chat: Chat, saver: Any) -> Any:
    def model(state: State) -> State:
        return {"messages": [collected(chat(state["messages"]))]}

    def tools(state: State) -> State:
        calls = state["messages"][-1]["tool_calls"]
        return {"messages": [{"role": "tool", "tool_call_id": call["id"], "content": "1"} for call in calls]}

    def next_of(state: State) -> str:
        return "tools" if state["messages"][-1].get("tool_calls") else str(END)

    graph = StateGraph(State)
    graph.add_node("model", model)
    graph.add_node("tools", tools)
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", next_of, ["tools", END])
    graph.add_edge("tools", "model")
    return graph.compile(checkpointer=saver)


def main(url: str, key: str, store: str, steps: str, client: str) -> None:
    saver = SqliteSaver(sqlite3.connect(store, check_same_thread=False))
    graph = make_graph((with_openai if client == "openai" else bare)(url, key), saver)
    for number, _ in enumerate(sys.stdin):
        config = {"configurable": {"thread_id": f"thread-{number}"}, "recursion_limit": 10 * int(steps)}
        began, used = time.perf_counter(), time.process_time()
        goal: State = {"messages": [{"role": "user", "content": "{}"}]}
        state = graph.invoke(goal, config, durability="sync")
        took = {"seconds": time.perf_counter() - began, "processor": time.process_time() - used}
        assert len(state["messages"]) == 2 * int(steps) + 2, "as many steps as the others make"
        print(json.dumps(took), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
