"""Secrets whose text is known, in every form in which they may be written.

Which variables of the environment hold secrets.
"""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from itertools import groupby
from typing import Final
from urllib.parse import quote, quote_plus, unquote, urlsplit

from checkrein.errors import MisuseError
from checkrein.secrets.stream import Found, head_of, label

_LEAST: Final = 4
_CUT: Final = 8
"""A text that breaks off within a secret shows a part of it: half of it, and this many characters, are too much."""


class KnownStrings:
    """Finds strings that are known to be secret. `strings` are these, or a mapping of names to them."""

    def __init__(self, strings: Iterable[str] | Mapping[str, str]) -> None:
        self._labels: dict[str, str] = {}
        named = dict(named_strings(strings))
        for name, secret in named.items():
            for form in forms_of(secret):
                self._labels.setdefault(form, label(name))
        self._by_first = _by_first_character(self._labels)
        self._chars = frozenset(char for form in self._labels for char in form)
        self.heads = "|".join(sorted({head_of(form) for form in self._labels}))
        self.count = len(named)
        self.needles = tuple(self._labels)
        self.most_held = max(map(len, self.needles), default=0)
        self._shortest = min(map(len, self.needles), default=0)

    def find(self, text: str, start: int) -> Found | None:
        if len(text) - start < self._shortest:
            return None
        found = self._pattern.search(text, start)
        return None if found is None else Found(found.start(), found.end(), self._labels[found[0]])

    def begun(self, text: str, start: int) -> int:
        if text[-1:] not in self._chars:
            return len(text)  # as after most words: a space is in few secrets
        at = max(start, len(text) - self.most_held + 1)
        while (found := self._head.search(text, at)) is not None:
            at = found.start()
            tail = text[at:]
            for form in self._by_first[text[at]]:
                if form.startswith(tail) and len(form) > len(tail):
                    return at
            at += 1
        return len(text)

    def cut(self, tail: str) -> str | None:
        for form in self._by_first.get(tail[:1], ()):
            if len(tail) >= max(_CUT, len(form) // 2) and form.startswith(tail):
                return self._labels[form]
        return None

    @cached_property
    def _head(self) -> re.Pattern[str]:
        return re.compile(self.heads)

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        """Of several that begin at the same place, the longest."""
        return re.compile(
            "|".join(
                f"{re.escape(first)}(?:{'|'.join(re.escape(form[1:]) for form in forms)})"
                for first, forms in self._by_first.items()
            )
        )


def named_strings(strings: Iterable[str] | Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Each string with its name. Raises `MisuseError`, which never quotes one, for what cannot be looked for."""
    if isinstance(strings, str):
        raise MisuseError("Secrets are given as a list of strings, or as a mapping of names to them; this is a string.")
    pairs = strings.items() if isinstance(strings, Mapping) else ((f"secret{n}", s) for n, s in enumerate(strings, 1))
    for name, secret in pairs:
        if not isinstance(secret, str) or len(secret) < _LEAST:
            raise MisuseError(
                f"The secret {name} is no string of at least {_LEAST} characters; it would be found everywhere."
            )
        yield name, secret


def forms_of(secret: str) -> Iterator[str]:
    """A secret as it is, and as it looks inside JSON, an address, and base64."""
    yield secret
    for ensure_ascii in (True, False):
        escaped = json.dumps(secret, ensure_ascii=ensure_ascii)[1:-1]
        yield escaped
        yield escaped.replace("/", r"\/")
    data = secret.encode("utf-8", "surrogatepass")
    for quoted in (quote(data, safe=""), quote(data, safe="/"), quote_plus(data)):
        yield quoted
        yield _with_small_hex(quoted)
    for shift in range(3):
        inside = _inside_base64(data, shift)
        yield inside
        yield inside.translate(_URL_SAFE)


_URL_SAFE: Final = str.maketrans("+/", "-_")


def _with_small_hex(quoted: str) -> str:
    """`%2F` may also be written `%2f`."""
    head, *rest = quoted.split("%")
    return head + "".join(f"%{part[:2].lower()}{part[2:]}" for part in rest)


def _inside_base64(data: bytes, shift: int) -> str:
    """What base64 makes of `data` when `shift` other bytes (mod 3) stand before it: the characters that depend on
    nothing but `data`. In `Basic dXNlcjpwYXNzd29yZA==` the password does not begin where a character does."""
    encoded = base64.b64encode(bytes(shift) + data).decode()
    first = -(-shift * 8 // 6)
    return encoded[first : (shift + len(data)) * 8 // 6]


def _by_first_character(forms: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """The forms that begin with each character, the longest first."""
    ordered = sorted(forms, key=lambda form: (form[0], -len(form), form))
    return {first: tuple(group) for first, group in groupby(ordered, key=lambda form: form[0])}


LEAST: Final = 8
"""A shorter value would be found in places that have nothing to do with it."""

_ENDINGS: Final = ("_KEY", "_TOKEN", "_SECRET", "PASSWORD")
_WORD: Final = 16
"""A word has fewer letters than this."""


def in_environment(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """The secrets by the names of their variables: the values of those whose name says so, and the passwords inside
    addresses, such as that of a database."""
    found = {}
    for name, value in sorted((os.environ if environ is None else environ).items()):
        secret = value.strip() if _is_name_of_secret(name) else _password_in(value)
        if len(secret) >= LEAST and not _is_word(secret) and not _is_path(secret):
            found[name] = secret
    return found


_CREDENTIALS: Final = frozenset({"AUTHORIZATION", "PROXY_AUTHORIZATION", "COOKIE"})


def in_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """The same for the headers of requests: `Authorization: Bearer …`, `X-Api-Key: …`."""
    named = {name.upper().replace("-", "_"): value for name, value in headers.items()}
    secrets = {name: value.rpartition(" ")[2] for name, value in named.items() if name in _CREDENTIALS}
    kept = {name: secret for name, secret in secrets.items() if len(secret) >= LEAST}
    return in_environment({name: value for name, value in named.items() if name not in secrets}) | kept


def _is_name_of_secret(name: str) -> bool:
    upper = name.upper()
    return upper.endswith(_ENDINGS) or "API_KEY" in upper


def _password_in(value: str) -> str:
    if "://" not in value or "@" not in value:
        return ""
    try:
        return unquote(urlsplit(value.strip()).password or "")
    except ValueError:
        return ""


def _is_word(value: str) -> bool:
    """`disabled`, `postgres`: redacted wherever it stands, it would take more away than it protects."""
    return len(value) < _WORD and value.isalpha() and value in (value.lower(), value.upper(), value.title())


def _is_path(value: str) -> bool:
    """`TLS_KEY=/etc/tls/server.key` says where the key is, which a tool may have to know."""
    if not value.startswith(("/", "~", ".")):
        return False
    try:
        return os.path.exists(os.path.expanduser(value))
    except (OSError, ValueError):
        return False
