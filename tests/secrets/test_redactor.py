"""Secrets in texts, in JSON, and in texts that come in pieces. Every key here is made up."""

from __future__ import annotations

import base64
import json
import time
from itertools import pairwise, product
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checkrein.errors import MisuseError
from checkrein.secrets import OFF, WELL_KNOWN, Secrets, Shape
from checkrein.secrets.known import forms_of, in_headers

KEY = "Zx8kQ2mLw9Rt4Vb7Nc1Y"
PASSWORD = 'p"ä/ss\\wörd +1'
NAMED = {"SERVICE_KEY": KEY, "DB_PASSWORD": PASSWORD}

# Put together from pieces, so that nobody's scanner takes this file for a leak.
WELL_KNOWN_KEYS = {
    "api_key": "sk-" + "proj-a1B2c3D4e5F6g7H8i9J0k1L2",
    "stripe_key": "sk_" + "live_4eC39HqLyjWDarjtT1zdp7dc",
    "github_token": "ghp_" + "16C7e42F292c6912E7710c838347Ae178B4a",
    "gitlab_token": "glpat-" + "Zs8dk29dkQ0a93kd_kLw",
    "slack_token": "xox" + "b-17653672481-19874698323-pdFZKVeTuE8sk7oOHcbrzqgy",
    "aws_key": "AKIA" + "IOSFODNN7EXAMPLE",
    "google_key": "AIza" + "SyDdI0hCZtE6vySjMm-WEfRq3CPzqKqqsHI",
    "npm_token": "npm_" + "a1b2c3d4e5f6g7h8i9j0k1l2m3n4o5p6q7r8",
    "huggingface_token": "hf_" + "AbCdEfGhIjKlMnOpQrStUvWxYz0123456789",
    "checkrein_token": "ckr_" + "AbCdEfGhIjKlMnOpQrStUvWxYz0123456789-_AbCdE",
    "jwt": "eyJ" + "hbGciOiJIUzI1NiJ9.eyJ" + "zdWIiOiIxMjM0In0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9P",
    "bearer_token": "Bearer " + "mF_9.B5f-4.1JqM-long~enough/to+be=",
}


def pem(kind: str = "RSA PRIVATE KEY", line_end: str = "\n") -> str:
    body = base64.b64encode(bytes(range(150))).decode()
    lines = [f"-----BEGIN {kind}-----", body[:64], body[64:128], body[128:], f"-----END {kind}-----"]
    return line_end.join(lines)


# -- known strings


@pytest.mark.parametrize(
    "written",
    [
        KEY,
        PASSWORD,
        json.dumps(PASSWORD)[1:-1],
        json.dumps(PASSWORD, ensure_ascii=False)[1:-1],
        json.dumps(PASSWORD)[1:-1].replace("/", r"\/"),
        quote(PASSWORD),
        quote(PASSWORD, safe=""),
        quote_plus(PASSWORD),
        quote(PASSWORD, safe="").lower(),
    ],
)
def test_a_known_string_is_found_as_it_is_and_escaped(written: str) -> None:
    redacted = Secrets(NAMED).text(f"It is {written}.")

    assert redacted in ("It is [redacted:SERVICE_KEY].", "It is [redacted:DB_PASSWORD].")


@pytest.mark.parametrize("before", ["", "u", "us", "user:", "user: "])
@pytest.mark.parametrize("after", ["", "!", "!!", "!!!"])
@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode])
def test_a_known_string_is_found_inside_base64_at_every_alignment(before: str, after: str, encode: Any) -> None:
    encoded = encode(f"{before}{PASSWORD}{after}".encode()).decode()

    redacted = Secrets(NAMED).text(f"Basic {encoded}")

    assert "[redacted:DB_PASSWORD]" in redacted
    left = redacted.removeprefix("Basic ").split("[redacted:DB_PASSWORD]")
    assert len(left[0]) <= len(before) * 8 // 6 + 2
    assert len(left[1]) <= len(after) * 8 // 6 + 4


def test_of_two_that_begin_alike_the_longer_is_found() -> None:
    secrets = Secrets({"SHORT": "abcdefgh", "LONG": "abcdefgh12345"})

    assert secrets.text("abcdefgh abcdefgh12345 abcdefgh123") == "[redacted:SHORT] [redacted:LONG] [redacted:SHORT]123"


def test_a_known_string_inside_something_of_a_well_known_shape_is_taken_out_whole() -> None:
    secrets = Secrets({"ODD": "abcdefghijklmnopqrst1!zyxwvut"})

    assert secrets.text("Bearer abcdefghijklmnopqrst1!zyxwvut") == "Bearer [redacted:ODD]"


def test_a_text_without_secrets_is_given_back_as_it_is() -> None:
    text = "A task-2024-11-long-name-with-dashes, a bearer of news, disk-based and eyJust."

    assert Secrets(NAMED).text(text) is text


# -- well-known shapes


@pytest.mark.parametrize(("kind", "key"), WELL_KNOWN_KEYS.items())
@pytest.mark.parametrize("frame", ["{}", "key={}", "key: {}\nnext", '"{}"', "({})", "a\\n{}\\nb", "x%3D{}", "{}, so."])
def test_a_key_of_a_well_known_shape_is_found_wherever_it_stands(kind: str, key: str, frame: str) -> None:
    assert Secrets().text(frame.format(key)) == frame.format(f"[redacted:{kind}]")


@pytest.mark.parametrize("kind", ["RSA PRIVATE KEY", "PRIVATE KEY", "OPENSSH PRIVATE KEY", "ENCRYPTED PRIVATE KEY"])
@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\\n"])
def test_a_private_key_is_found_in_lines_and_in_one(kind: str, line_end: str) -> None:
    redacted = Secrets().text(f"Here:\n{pem(kind, line_end)}\nThat was it.")

    assert redacted == f"Here:\n[redacted:private_key]-----END {kind}-----\nThat was it."


def test_a_private_key_that_breaks_off_is_found_too() -> None:
    assert Secrets().text(pem()[:100]) == "[redacted:private_key]"


@pytest.mark.parametrize(
    "harmless",
    [
        "A file that begins with -----BEGIN RSA PRIVATE KEY----- holds a private key.",
        "-----BEGIN CERTIFICATE-----\nMIIDdzCCAl+gAwIBAgIEAgAAuTANBgkqhkiG9w0BAQUFADBa\n-----END CERTIFICATE-----",
        "risk-based-authentication-2024 and task-12345678901234567890",
        "Bearer authentication is explained in RFC 6750, bearer responsibilities-and-duties are not.",
        "sk-learn-is-a-library-for-machine-learning",
        "the AKIAN people, xoxo, hf_hub, npm_config, ghp_short, eyJhbGciOiJIUzI1NiJ9 alone",
        "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    ],
)
def test_what_only_resembles_a_key_is_left_alone(harmless: str) -> None:
    assert Secrets().text(harmless) == harmless


def test_an_author_can_say_what_their_own_keys_look_like() -> None:
    secrets = Secrets(shapes=[*WELL_KNOWN, Shape("house_key", "house-", "0-9a-f", 12)])

    assert secrets.text("It is house-0123456789abcdef.") == "It is [redacted:house_key]."
    assert secrets.text("It is house-0123.") == "It is house-0123."


@pytest.mark.parametrize("shape", [{"start": "k"}, {"start": "key-", "least": 0}, {"start": "key-", "chars": "z-a"}])
def test_a_shape_that_cannot_be_looked_for_is_refused(shape: dict[str, Any]) -> None:
    with pytest.raises(MisuseError):
        Secrets(shapes=[Shape("wrong", **shape)])


# -- which strings are secret


def test_the_environment_says_what_is_secret() -> None:
    environ = {
        "OPENAI_API_KEY": "value-number-1",
        "MY_API_KEY_OLD": "value-number-2",
        "github_token": "value-number-3",
        "APP_SECRET": "value-number-4",
        "PGPASSWORD": "value-number-5",
        "DB_PASSWORD": "value-number-6",
        "DATABASE_URL": "postgres://ann:value%2Dnumber%2D7@db.example:5432/app",
        "HOME": "value-number-8",
        "KEYBOARD": "value-number-9",
        "PIN_TOKEN": "1234567",
        "FEATURE_KEY": "disabled",
        "BROKEN_URL": "http://[:password@",
    }
    secrets = Secrets.from_environment(environ)

    redacted = [secrets.text(f"value-number-{n}") for n in range(1, 10)]

    assert redacted == [
        "[redacted:OPENAI_API_KEY]",
        "[redacted:MY_API_KEY_OLD]",
        "[redacted:github_token]",
        "[redacted:APP_SECRET]",
        "[redacted:PGPASSWORD]",
        "[redacted:DB_PASSWORD]",
        "[redacted:DATABASE_URL]",
        "value-number-8",
        "value-number-9",
    ]
    assert secrets.text("1234567, disabled") == "1234567, disabled"


def test_headers_say_what_is_secret_too() -> None:
    headers = {"Authorization": "Bearer abcdef-123456", "X-Api-Key": "k3y-0123456789", "X-Team": "finance-department"}

    assert in_headers(headers) == {"AUTHORIZATION": "abcdef-123456", "X_API_KEY": "k3y-0123456789"}


def test_what_becomes_known_later_is_looked_for_from_then_on() -> None:
    secrets, off = Secrets({"ONE": "first-secret-1"}), Secrets(shapes=())
    said = "first-secret-1 and second-secret-2"

    secrets.learn({"TWO": "second-secret-2", "AGAIN": "first-secret-1"})
    off.learn({"TWO": "second-secret-2"})

    assert secrets.text(said) == "[redacted:ONE] and [redacted:TWO]"
    assert off.text(said) == said, "what was turned off stays off"


def test_a_variable_that_says_where_a_key_is_does_not_make_its_path_a_secret(tmp_path: Path) -> None:
    path = tmp_path / "server.key"
    path.write_text("")
    secrets = Secrets.from_environment({"TLS_KEY": str(path), "OTHER_KEY": "/9j+4AAQSkZJRg"})

    assert secrets.text(f"{path} /9j+4AAQSkZJRg") == f"{path} [redacted:OTHER_KEY]"


def test_what_is_given_decides_what_is_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERVICE_KEY", KEY)
    own = Secrets(["another1234"])
    text = f"{KEY} {WELL_KNOWN_KEYS['aws_key']} another1234"

    assert Secrets.of(None).text(text) == "[redacted:SERVICE_KEY] [redacted:aws_key] another1234"
    assert Secrets.of(["another1234"]).text(text) == f"{KEY} [redacted:aws_key] [redacted:secret1]"
    assert Secrets.of({"mine": "another1234"}).text(text) == f"{KEY} [redacted:aws_key] [redacted:mine]"
    assert Secrets.of(own) is own
    assert Secrets.of(()) is OFF
    assert OFF.text(text) is text
    also = Secrets.from_environment(also={"mine": "another1234"}, shapes=())
    assert also.text(text) == f"[redacted:SERVICE_KEY] {WELL_KNOWN_KEYS['aws_key']} [redacted:mine]"


@pytest.mark.parametrize("wrong", ["a plain string", ["abc"], [""], [12345678]])
def test_what_would_be_found_everywhere_is_refused_without_being_quoted(wrong: Any) -> None:
    with pytest.raises(MisuseError) as caught:
        Secrets.of(wrong)

    assert "plain string" not in str(caught.value)
    assert "abc" not in str(caught.value)


def test_nothing_shows_the_secrets_themselves() -> None:
    assert KEY not in repr(Secrets(NAMED)) + repr(Secrets(NAMED).stream())


# -- JSON


@pytest.mark.parametrize(
    ("body", "redacted"),
    [
        (f'{{"key":"{KEY}","n":1.50}}', '{"key":"[redacted:SERVICE_KEY]","n":1.50}'),
        (f'{{"{KEY}":[1,2]}}', '{"[redacted:SERVICE_KEY]":[1,2]}'),
        ("".join(f"\\u{ord(char):04x}" for char in KEY).join('""'), '"[redacted:SERVICE_KEY]"'),
        (json.dumps([PASSWORD]), '["[redacted:DB_PASSWORD]"]'),
        (json.dumps(json.dumps({"p": PASSWORD})), json.dumps('{"p": "[redacted:DB_PASSWORD]"}')),
        ("[8675309123, 86753091230, 1]", '["[redacted:PIN_TOKEN]", "[redacted:PIN_TOKEN]0", 1]'),
    ],
)
def test_escapes_keys_and_numbers_do_not_hide_a_secret_in_json(body: str, redacted: str) -> None:
    secrets = Secrets({**NAMED, "PIN_TOKEN": "8675309123"})

    assert secrets.json(body.encode()).decode() == redacted


def test_an_emoji_in_a_password_does_not_hide_it_either() -> None:
    body = json.dumps("the 🔑 word🔑 it is").encode()

    assert Secrets(["🔑 word🔑"]).json(body) == b'"the [redacted:secret1] it is"'


def test_json_without_secrets_is_given_back_as_it_is() -> None:
    body = b'{"a": 1.0e5, "a": 12345678901234567890123, "t": "task-1 \\u00e9 \\ud800"}'

    assert Secrets(NAMED).json(body) is body


@pytest.mark.parametrize("body", [f'{{"half": "{KEY}'.encode(), b"\xff\xfe" + KEY.encode()])
def test_what_is_no_json_is_redacted_as_text(body: bytes) -> None:
    assert KEY.encode() not in Secrets(NAMED).json(body)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.just(KEY)
    | st.just(PASSWORD),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.just(f"a{KEY}"), inner),
    max_leaves=12,
)


@settings(max_examples=300, deadline=None)
@given(JSON, st.booleans())
def test_redacted_json_says_the_same_without_the_secrets(value: Any, ensure_ascii: bool) -> None:
    secrets = Secrets(NAMED)
    body = json.dumps(value, ensure_ascii=ensure_ascii).encode("utf-8", "surrogatepass")

    redacted = json.loads(secrets.json(body).decode("utf-8", "surrogatepass"))

    assert redacted == redacted_by_hand(secrets, value)


def redacted_by_hand(secrets: Secrets, value: Any) -> Any:
    if isinstance(value, str):
        return secrets.text(value)
    if isinstance(value, list):
        return [redacted_by_hand(secrets, item) for item in value]
    if isinstance(value, dict):
        return {secrets.text(key): redacted_by_hand(secrets, item) for key, item in value.items()}
    return value


# -- texts that come in pieces

SMALL = {"one": "abab", "two": "ababc", "three": "bca-bca", "four": "cccccc"}
"""Strings that begin and end in one another."""
TINY_SHAPES = (
    Shape("tiny", "ab-", "abc", 2),
    Shape("dotted", "--", "a.", 3, head=r"a{1,2}\.a", within=4, rest=r"a|\.(?=a)"),
)

PIECES = st.lists(
    st.sampled_from(
        [KEY, KEY[:7], KEY[7:], KEY[:-1], KEY[1:], PASSWORD, PASSWORD[:9], quote(PASSWORD), json.dumps(PASSWORD)]
        + [base64.b64encode(KEY.encode()).decode(), pem(), pem()[:60], "-----BEGIN ", "-----END X PRIVATE KEY-----"]
        + list(WELL_KNOWN_KEYS.values())
        + [key[:-6] for key in WELL_KNOWN_KEYS.values()]
        + ["sk-", "eyJ", ".eyJ", "Bearer ", "xoxb-", "-", "--", "\\n", "%3D", " ", ".", "\n", "word", "1", "ß"]
    )
    | st.text(max_size=5)
)
SMALL_TEXT = st.text(alphabet="abc-.", max_size=40)


@st.composite
def cut_into_chunks(draw: st.DrawFn, texts: st.SearchStrategy[str]) -> list[str]:
    text = draw(texts)
    places = draw(st.lists(st.integers(0, len(text)), max_size=30))
    edges = [0, *sorted(places), len(text)]
    return [text[start:end] for start, end in pairwise(edges)]


def passed_on(secrets: Secrets, chunks: list[str]) -> str:
    """What a stream passes on in all, checked for what it may hold back."""
    stream = secrets.stream()
    given_out = []
    for chunk in chunks:
        given_out.append(stream.feed(chunk))
        assert stream.held <= secrets.most_held
    given_out.append(stream.end())
    assert stream.held == 0
    return "".join(given_out)


@settings(max_examples=300, deadline=None)
@given(cut_into_chunks(PIECES.map("".join)))
def test_no_way_to_cut_a_text_lets_a_secret_through(chunks: list[str]) -> None:
    secrets = Secrets(NAMED)

    shown = passed_on(secrets, chunks)

    assert KEY not in shown
    assert PASSWORD not in shown
    text = "".join(chunks)
    if not breaks_off_within_a_known_string(text):
        assert shown == secrets.text(text)


def breaks_off_within_a_known_string(text: str) -> bool:
    forms = {form for secret in NAMED.values() for form in forms_of(secret)}
    return any(text.endswith(form[:length]) for form in forms for length in range(max(8, len(form) // 2), len(form)))


@settings(max_examples=300, deadline=None)
@given(cut_into_chunks(SMALL_TEXT))
def test_strings_and_shapes_that_overlap_are_told_apart_wherever_the_text_is_cut(chunks: list[str]) -> None:
    secrets = Secrets(SMALL, shapes=TINY_SHAPES)

    assert passed_on(secrets, chunks) == secrets.text("".join(chunks))


@settings(max_examples=300, deadline=None)
@given(cut_into_chunks(st.text(alphabet="abc-. dé\n", max_size=200)))
def test_a_text_without_secrets_passes_unchanged_and_complete(chunks: list[str]) -> None:
    secrets = Secrets(NAMED)

    assert passed_on(secrets, chunks) == "".join(chunks)


def test_every_short_text_is_read_alike_whole_and_character_by_character() -> None:
    secrets = Secrets(SMALL, shapes=TINY_SHAPES)
    texts = ["".join(chars) for length in range(8) for chars in product("ab.-", repeat=length)]

    differing = [text for text in texts if passed_on(secrets, list(text)) != secrets.text(text)]

    assert differing == []
    assert sum(secrets.text(text) != text for text in texts) > 300


@pytest.mark.parametrize("secret", [KEY, *WELL_KNOWN_KEYS.values(), pem()])
@pytest.mark.parametrize("frame", ["It is {}!\n", "a\\n{}\\nb", "x%3D{}&y"])
def test_a_secret_that_comes_character_by_character_is_not_passed_on(secret: str, frame: str) -> None:
    secrets, text = Secrets(NAMED), frame.format(secret)

    assert passed_on(secrets, list(text)) == secrets.text(text)
    assert "[redacted:" in secrets.text(text)


@pytest.mark.parametrize("form", sorted({form for secret in NAMED.values() for form in forms_of(secret)}))
def test_every_form_of_a_known_string_is_held_back_until_it_is_complete(form: str) -> None:
    stream = Secrets(NAMED).stream()

    passed = [stream.feed(char) for char in form]

    assert passed[:-1] == [""] * (len(form) - 1)
    assert (passed[-1] + stream.end()).startswith("[redacted:")


def test_text_is_passed_on_at_once_unless_it_could_become_a_secret() -> None:
    stream = Secrets(NAMED).stream()

    passed = [stream.feed(chunk) for chunk in ["Hello ", "world", ", Z", "x8kQ", "uick", " ", KEY[:-1], KEY[-1:], "."]]

    assert passed == ["Hello ", "world", ", ", "", "Zx8kQuick", " ", "", "[redacted:SERVICE_KEY]", "."]


def test_a_token_without_end_is_not_kept_in_memory() -> None:
    stream = Secrets().stream()

    shown = [stream.feed(WELL_KNOWN_KEYS["jwt"]), *(stream.feed("a1" * 500) for _ in range(200)), stream.feed(" so")]

    assert "".join(shown) == "[redacted:jwt] so"
    assert stream.held == 0


@pytest.mark.parametrize("length", range(1, len(KEY)))
def test_a_stream_that_breaks_off_within_a_known_string_does_not_show_most_of_it(length: int) -> None:
    stream = Secrets(NAMED).stream()

    shown = stream.feed("It is ") + stream.feed(KEY[:length]) + stream.end()

    assert shown == ("It is [redacted:SERVICE_KEY]" if length >= len(KEY) // 2 else f"It is {KEY[:length]}")


def test_a_stream_knows_whether_it_has_redacted_anything() -> None:
    stream = Secrets(NAMED).stream()

    before = stream.feed("Hello. "), stream.has_redacted
    after = stream.feed(f"{KEY} "), stream.has_redacted

    assert before == ("Hello. ", False)
    assert after == ("[redacted:SERVICE_KEY] ", True)


# -- cost


def test_a_large_text_costs_no_more_than_in_proportion() -> None:
    """Generous by a factor of a hundred: it is there to catch what grows with the square."""
    secrets = Secrets.from_environment({f"KEY_{n}_TOKEN": f"{n:03}" + KEY for n in range(10)})
    text = "A task-force of eyJust sk-ilful bearers, Bearer of -----BEGIN news. " * 8_000

    began = time.perf_counter()
    redacted = secrets.text(text)
    stream = secrets.stream()
    shown = stream.feed(text) + stream.end()

    assert redacted == shown == text
    assert time.perf_counter() - began < 20
