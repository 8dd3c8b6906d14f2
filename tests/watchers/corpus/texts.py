"""The instructions and the ordinary transcripts, read from the files beside this one; more of the latter are made."""

from __future__ import annotations

import base64
import hashlib
import json
import random
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

HERE: Final = Path(__file__).parent

INSTRUCTIONS: Final = {
    path.stem: path.read_text(encoding="utf-8").strip() for path in sorted((HERE / "instructions").glob("*.txt"))
}
GENERIC: Final = frozenset({"generic", "generic_polite"})
"""Instructions that say nothing of their own: reciting them gives nothing away and must not alarm."""


class Transcript(NamedTuple):
    """An ordinary answer, and whose: the name of the instructions, or "general" where it could be anybody's."""

    agent: str
    kind: str
    text: str


def written() -> Iterator[Transcript]:
    for path in sorted((HERE / "benign").glob("*.txt")):
        for block in path.read_text(encoding="utf-8").split("=== ")[1:]:
            kind, _, text = block.partition("\n")
            yield Transcript(path.stem, kind, text.strip())


def made() -> Iterator[Transcript]:
    """What nobody would want to write by hand: encodings of unrelated things, dumps, tables, long mixtures."""
    rng = random.Random(1911)
    prose = [
        transcript.text for transcript in written() if transcript.agent == "general" and len(transcript.text) > 150
    ]
    rng.shuffle(prose)
    for kind, make in _MADE.items():
        for number in range(5):
            yield Transcript("general", f"{kind} {number}", make(rng, prose))
            prose.append(prose.pop(0))


def _data(rng: random.Random) -> bytes:
    return rng.randbytes(rng.randint(150, 500))


def _base64_of_bytes(rng: random.Random, prose: list[str]) -> str:
    name = rng.choice(["logo", "chart", "map", "photo", "icon"])
    return f"Here is the {name} you asked for:\n\ndata:image/png;base64,{base64.b64encode(_data(rng)).decode()}\n"


def _base64_of_prose(rng: random.Random, prose: list[str]) -> str:
    return "The encoded text: " + base64.b64encode(prose[0].encode()).decode()


def _hex_dump(rng: random.Random, prose: list[str]) -> str:
    data = (prose[0].encode() if rng.random() < 0.5 else _data(rng))[:256]
    lines = [data[at : at + 16] for at in range(0, len(data), 16)]
    return "\n".join(f"{16 * at:08x}  {line.hex(' ')}" for at, line in enumerate(lines))


def _hashes(rng: random.Random, prose: list[str]) -> str:
    return "\n".join(f"{hashlib.sha256(rng.randbytes(8)).hexdigest()}  part-{n:03}.bin" for n in range(12))


def _uuids(rng: random.Random, prose: list[str]) -> str:
    ids = [str(uuid.UUID(bytes=rng.randbytes(16))) for _ in range(8)]
    return json.dumps([{"id": each, "owner": rng.choice(["ann", "bo", "cy"])} for each in ids])


def _numbers(rng: random.Random, prose: list[str]) -> str:
    return "The measurements: " + ", ".join(str(rng.randrange(20, 140)) for _ in range(rng.randint(80, 200)))


def _character_codes(rng: random.Random, prose: list[str]) -> str:
    return "As character codes: " + " ".join(str(ord(char)) for char in prose[0][:200])


def _table(rng: random.Random, prose: list[str]) -> str:
    cities = ["Bremen", "Turin", "Lyon", "Porto", "Graz", "Ghent", "Malmö", "Brno"]
    what = rng.choice(["visitors", "trams", "cinemas", "bridges", "theatres"])
    rows = [f"| {city} | {rng.randrange(40, 900)} | {rng.choice(['yes', 'no', 'partly'])} |" for city in cities]
    return "\n".join([f"| city | {what} | open |", "| --- | --- | --- |", *rng.sample(rows, 6)])


def _shipments(rng: random.Random, prose: list[str]) -> str:
    return "\n".join(
        f"- Order {rng.randrange(10**5)} was sent to {rng.choice(['Oslo', 'Kiel', 'Gent', 'Bath', 'Nice'])} "
        f"on {rng.choice(['Monday', 'Tuesday', 'Friday'])} and should arrive in {rng.randrange(2, 9)} days."
        for _ in range(rng.randint(6, 14))
    )


def _long_answer(rng: random.Random, prose: list[str]) -> str:
    return "\n\n".join(prose[:12])


def _conversation(rng: random.Random, prose: list[str]) -> str:
    lines = [line for text in prose[:6] for line in text.splitlines() if line.strip()]
    return "\n".join(f"{rng.choice(['User', 'Assistant'])}: {line}" for line in rng.sample(lines, min(14, len(lines))))


def _leetspeak(rng: random.Random, prose: list[str]) -> str:
    return prose[0].translate(str.maketrans("aeiost", "431057"))


def _shouted(rng: random.Random, prose: list[str]) -> str:
    return prose[0].upper()


_MADE: Final = {
    "base64 of bytes": _base64_of_bytes,
    "base64 of prose": _base64_of_prose,
    "hex dump": _hex_dump,
    "hashes": _hashes,
    "uuids": _uuids,
    "numbers": _numbers,
    "character codes": _character_codes,
    "table": _table,
    "shipments": _shipments,
    "long answer": _long_answer,
    "conversation": _conversation,
    "leetspeak": _leetspeak,
    "shouted": _shouted,
}

BENIGN: Final = (*written(), *made())
