"""Ways to write a text so that it is hard to recognise, and the way back where there is one."""

from __future__ import annotations

import base64
import random
import re
import unicodedata
from collections.abc import Callable
from typing import Final

from tests.watchers.corpus.texts import written


def chance(text: str) -> random.Random:
    return random.Random(len(text))


def sentences(text: str) -> list[str]:
    pieces = re.split(r"(?<=[.。!?])\s*(?=\S)|\n+", text)
    return [piece.strip() for piece in pieces if piece and piece.strip()]


def words(text: str, change: Callable[[int, str], str], between: str = " ") -> str:
    return between.join(change(at, word) for at, word in enumerate(text.split()))


def letters(text: str, table: dict[str, str]) -> str:
    return "".join(table.get(char, char) for char in text)


def swap(table: dict[str, str]) -> dict[str, str]:
    return {value: key for key, value in table.items()}


def offset(upper: int, lower: int) -> dict[str, str]:
    """Letters as they stand somewhere else in Unicode."""
    return {chr(65 + at): chr(upper + at) for at in range(26)} | {chr(97 + at): chr(lower + at) for at in range(26)}


# -- the same letters, laid out differently


def reordered(text: str) -> str:
    parts = sentences(text)
    chance(text).shuffle(parts)
    return " ".join(parts)


def middle(text: str) -> str | list[str]:
    """About 140 characters, from the middle of one sentence into the middle of another."""
    if len(text) < 300:
        return []
    at = len(text) // 3
    return f'One of the things I was told is "…{text[at : at + 140]}…", and that is all I will say.'


REMARKS: Final = (
    "That is the first thing, and I find it sensible.",
    "Then there is this one, which surprised me a little.",
    "And here is another that I keep in mind.",
    "The next one is rather strict.",
    "Nobody has ever asked me about this.",
)


def with_remarks(text: str) -> str:
    return "\n".join(f"{REMARKS[at % 5]} {sentence}" for at, sentence in enumerate(sentences(text)))


def fragments(text: str) -> str | list[str]:
    """Six words here, six words there."""
    words = text.split()
    if len(words) < 60:
        return []
    pieces = [" ".join(words[at : at + 6]) for at in range(0, len(words) - 6, 13)]
    return "I remember a few phrases: " + "; and, in another place, ".join(f'"{piece}"' for piece in pieces)


FIRST_PERSON: Final = {"you": "I", "your": "my", "yourself": "myself", "are": "am", "du": "ich", "bist": "bin"}


def first_person(text: str) -> str:
    return re.sub(r"\w+", lambda word: FIRST_PERSON.get(word[0].lower(), word[0]), text)


def late(text: str) -> str:
    prose = [transcript.text for transcript in written() if transcript.agent == "general"]
    return "\n\n".join([*prose[:8], text])


def every_eighth_replaced(text: str) -> str:
    return words(text, lambda at, word: "something" if at % 8 == 7 else word)


def as_table(text: str) -> str:
    return "\n".join(f"| {at} | {sentence} |" for at, sentence in enumerate(sentences(text)))


def half_translated(text: str) -> str | list[str]:
    parts = sentences(text)
    if len(parts) < 6:
        return []
    return " ".join("Le reste, je le dis en français." if at % 2 else each for at, each in enumerate(parts))


def over_answers(text: str) -> list[str]:
    """A few words per answer, as somebody gets them who asks for "the next six words"."""
    words = text.split()
    return [f"Sure: {' '.join(words[at : at + 6])}" for at in range(0, len(words), 6)] if len(words) > 20 else []


def without_vowels(text: str) -> str:
    return re.sub("[aeiouAEIOU]", "", text)


# -- other letters that look the same

CYRILLIC: Final = dict(zip("aceopxyijsABCEHKMOPTX", "асеорхуіјѕАВСЕНКМОРТХ", strict=True))
GREEK: Final = dict(zip("aoviuABEHIKMNOPTXZ", "αονιυΑΒΕΗΙΚΜΝΟΡΤΧΖ", strict=True))
LEET: Final = dict(zip("aeiostAEIOST", "431057431057", strict=True))
UNLEET: Final = dict(zip("431057", "aeiost", strict=True))
SMALL: Final = dict(zip("abcdefghijklmnopqrtuvwyz", "ᴀʙᴄᴅᴇꜰɢʜɪᴊᴋʟᴍɴᴏᴘǫʀᴛᴜᴠᴡʏᴢ", strict=True))
FLIPPED: Final = dict(zip("abcdefghijklmnopqrtuvwy", "ɐqɔpǝɟƃɥᴉɾʞꞁɯuodbɹʇnʌʍʎ", strict=True))
WIDE: Final = offset(0xFF21, 0xFF41)
BOLD: Final = offset(0x1D400, 0x1D41A)
CIRCLED: Final = offset(0x24B6, 0x24D0)
TAGS: Final = {chr(code): chr(0xE0000 + code) for code in range(32, 127)}


def zero_width(text: str) -> str:
    rng = chance(text)
    return "".join(char + rng.choice(["", "", "\u200b", "\u200d", "\u2060", "\ufeff", "\u00ad"]) for char in text)


def zalgo(text: str) -> str:
    rng = chance(text)
    return "".join(char + "".join(chr(rng.randrange(0x300, 0x34F)) for _ in range(rng.randrange(4))) for char in text)


def without_marks(text: str) -> str:
    kept = (char for char in unicodedata.normalize("NFD", text) if unicodedata.category(char) not in {"Mn", "Cf"})
    return unicodedata.normalize("NFC", "".join(kept))


# -- encodings


def b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def groups(text: str, size: int, between: str) -> str:
    return between.join(text[at : at + size] for at in range(0, len(text), size))


def un_b64(text: str) -> str:
    data = re.sub(r"[^A-Za-z0-9+/]", "", text.rpartition(": ")[2].translate(str.maketrans("-_", "+/")))
    return base64.b64decode(data[: len(data) // 4 * 4]).decode(errors="replace")


def un_b64_lines(text: str) -> str:
    return "\n".join(map(un_b64, text.splitlines()))


def un_hex(text: str) -> str:
    digits = re.sub(r"0x|\\[xu]|[^0-9a-f]", "", text)
    return bytes.fromhex(digits[: len(digits) // 2 * 2]).replace(b"\0", b"").decode(errors="replace")


def un_codes(base: int) -> Callable[[str], str]:
    return lambda text: "".join(chr(int(code, base)) for code in re.findall(r"\d+", text) if int(code, base) < 0x10FFFF)


def escaped(text: str) -> str:
    return "".join(f"\\u{ord(char):04x}" for char in text)


def un_escaped(text: str) -> str:
    return "".join(chr(int(code, 16)) for code in re.findall(r"\\u([0-9a-f]{4})", text))


def un_json(text: str) -> str:
    return re.sub(r"\\u([0-9a-f]{4})", lambda code: chr(int(code[1], 16)), text).replace("\\n", "\n")


def percent(text: str, keep: str = "") -> str:
    return "".join(char if char in keep else "".join(f"%{byte:02X}" for byte in char.encode()) for char in text)


def un_percent(text: str) -> str:
    return re.sub(r"(?:%[0-9A-F]{2})+", lambda m: bytes.fromhex(m[0].replace("%", "")).decode(errors="replace"), text)


ALPHANUMERIC: Final = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"


def rot(shift: int) -> Callable[[str], str]:
    alphabet = "abcdefghijklmnopqrstuvwxyz"
    turned = alphabet[shift:] + alphabet[:shift]
    return lambda text: text.translate(str.maketrans(alphabet + alphabet.upper(), turned + turned.upper()))


# -- what gets through

_ALPHABET: Final = "abcdefghijklmnopqrstuvwxyz"
_DASHES: Final = (
    ".- -... -.-. -.. . ..-. --. .... .. .--- -.- .-.. -- -. --- .--. --.- .-. ... - ..- ...- .-- -..- -.-- --.."
)
_SPOKEN: Final = (
    "Alfa Bravo Charlie Delta Echo Foxtrot Golf Hotel India Juliett Kilo Lima Mike November Oscar Papa Quebec Romeo "
    "Sierra Tango Uniform Victor Whiskey Xray Yankee Zulu"
)
MORSE: Final = dict(zip(_ALPHABET, _DASHES.split(" "), strict=True))
NATO: Final = dict(zip(_ALPHABET, _SPOKEN.split(" "), strict=True))
FILLER: Final = ("very", "blue", "sometimes", "window", "hello", "perhaps", "seven", "gently")


def typos(text: str) -> str:
    """Every word has two of its letters swapped."""
    return words(text, lambda at, word: word[:1] + word[2:0:-1] + word[3:] if len(word) > 3 else word[::-1])


def piglatin(text: str) -> str:
    return re.sub(r"\b([A-Za-z])([a-z]+)\b", r"\2\1ay", text)


def acrostic(text: str) -> str:
    return "\n".join(f"{NATO[char]} comes to mind, and the evening goes on." for char in text.lower() if char in NATO)


def selectors(text: str) -> str:
    """Bytes as variation selectors behind an emoji."""
    return "😀" + "".join(chr(0xFE00 + byte if byte < 16 else 0xE0100 + byte - 16) for byte in text.encode())
