"""The status table as a picture and as a table, in Markdown: generated, so that the docs cannot drift from the code."""

from __future__ import annotations

from checkrein.core.table import VERBS, Move
from checkrein.core.words import TERMINAL, Status, Verb


def status_page() -> str:
    """The text of `docs/design/status.md`."""
    return "\n".join(
        [
            "# The status of a run, and what each verb does to it",
            "",
            "Generated from `checkrein.core.table` by `make docs`; a test fails when it is stale.",
            "",
            "```mermaid",
            *_diagram(),
            "```",
            "",
            "An arrow with a verb is what happens when the verb is accepted; *settled* is what follows when all that",
            "it asked for has happened. A verb that is missing in a status is refused and changes nothing.",
            "",
            *_table(),
            "",
            "*same receipt*: nothing new is accepted, the answer is the receipt of the verb already in force. *taken*:",
            "the status stays as it is. Where no driver lives, a resumed run is queued.",
            "",
        ]
    )


def _diagram() -> list[str]:
    lines = ["stateDiagram-v2", "    [*] --> queued", "    queued --> running: a driver starts"]
    for (status, verb), move in VERBS.items():
        if move.to is not status and verb is not Verb.HALT:
            lines.append(f"    {status.value} --> {move.to.value}: {verb.value}")
    settled = dict.fromkeys((move.to, move.settled) for move in VERBS.values() if move.settled is not None)
    lines += [f"    {to.value} --> {after.value}: settled" for to, after in settled]
    lines += ["    running --> completed: the program ends", "    running --> failed: the program raises"]
    lines += ["    note right of killed: halt leads here from every live status"]
    return [*lines, *(f"    {status.value} --> [*]" for status in Status if status in TERMINAL)]


def _table() -> list[str]:
    head = "| status | " + " | ".join(verb.value for verb in Verb) + " |"
    rule = "| --- |" + " --- |" * len(Verb)
    rows = [
        f"| {status.value} | " + " | ".join(_cell(status, VERBS.get((status, verb))) for verb in Verb) + " |"
        for status in Status
    ]
    return [head, rule, *rows]


def _cell(status: Status, move: Move | None) -> str:
    if move is None:
        return "–"
    if move.joins:
        return "same receipt"
    if move.to is status and move.settled is None:
        return "taken"
    arrow = "" if move.settled is None else f" → {move.settled.value}"
    return f"{move.to.value}{arrow}"
