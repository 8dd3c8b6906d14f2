"""What a provider's error means: a typed error, whether to try again, when, and what it said."""

from __future__ import annotations

import time
from email.utils import formatdate
from typing import Any

import msgspec
import pytest

from checkrein import errors
from checkrein.models.failures import LONGEST_SENTENCE, from_response, from_stream, read, retry_after
from tests.models.statuses import STATUSES

WHO = "acme (api.acme.example)"


def body(message: str = "Something is wrong.", **more: Any) -> bytes:
    return msgspec.json.encode({"error": {"message": message, **more}})


def error(status: int, said: bytes = b"", **headers: str) -> errors.ModelError:
    return from_response(WHO, status, {name.replace("_", "-"): value for name, value in headers.items()}, said)


@pytest.mark.parametrize(("status", "kind", "may_retry"), [(status, *meaning) for status, meaning in STATUSES.items()])
def test_a_status_is_a_typed_error_with_a_remedy(status: int, kind: type[errors.ModelError], may_retry: bool):
    found = error(status, body())

    assert type(found) is kind
    assert found.may_retry is may_retry
    assert found.remedy
    assert str(found).startswith(WHO)
    assert str(status) in str(found)


def test_the_providers_own_sentence_is_in_it():
    assert str(error(404, body("The model `gpt-9` does not exist."))) == (
        f"{WHO} does not have this model (404): The model `gpt-9` does not exist."
    )


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        (b'{"error": {"message": "No."}}', "No."),
        (b'{"type": "error", "error": {"type": "api_error", "message": "No."}}', "No."),
        (b'{"error": "No."}', "No."),
        (b'{"detail": "No."}', "No."),
        (b'{"detail": [{"msg": "No."}]}', '[{"msg":"No."}]'),
        (b'{"message": "No."}', "No."),
        (b'[{"error": {"message": "No."}}]', "No."),
        (b'{"error": {"message": "Upstream", "metadata": {"raw": "No."}}}', "Upstream (No.)"),
        (b"No.", "No."),
        (b"No\r\n\x1b[2Jsuch thing.", "No [2Jsuch thing."),
        (b"<html><body>502 Bad Gateway</body></html>", ""),
        (b"", ""),
        (b"[]", ""),
        (b"[[[[", "[[[["),
        (b"\xff\xfe", "\N{REPLACEMENT CHARACTER}" * 2),
    ],
)
def test_what_it_says_is_found_in_many_forms(said: bytes, sentence: str):
    assert read(said).message == sentence


def test_a_long_sentence_is_cut():
    assert len(read(b"x" * 10_000).message) == LONGEST_SENTENCE + 1


def test_a_key_that_the_provider_repeats_is_not_shown():
    found = from_response(WHO, 401, {}, body("The key sk-secret-key is wrong."), secrets=["sk-secret-key", ""])

    assert "sk-secret-key" not in str(found)
    assert "[hidden]" in str(found)


# -- trying again


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "8"}, 8.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after-ms": "250", "retry-after": "1"}, 0.25),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-3"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "Wed, 99 Nov 2026 99:99:99 GMT"}, None),
        ({"retry-after": formatdate(0, usegmt=True)}, 0.0),
        ({}, None),
    ],
)
def test_how_long_to_wait_is_read_from_the_headers(headers: dict[str, str], seconds: float | None):
    assert retry_after(headers) == seconds


def test_a_date_to_wait_for_is_turned_into_seconds():
    wait = retry_after({"retry-after": formatdate(time.time() + 100, usegmt=True)})

    assert wait is not None
    assert 0 < wait <= 100


def test_a_rate_limit_and_an_overload_say_how_long_to_wait():
    limited, overloaded = error(429, body(), retry_after="8"), error(529, body(), retry_after="3")

    assert isinstance(limited, errors.ModelRateLimited)
    assert limited.retry_after == 8.0
    assert isinstance(overloaded, errors.ModelUnavailable)
    assert (overloaded.retry_after, overloaded.reason) == (3.0, "overloaded")


@pytest.mark.parametrize("said", [body(code="insufficient_quota"), body(type="billing_error")])
def test_a_quota_that_is_used_up_is_not_tried_again(said: bytes):
    found = error(429, said)

    assert isinstance(found, errors.ModelRateLimited)
    assert not found.may_retry
    assert "credit" in found.remedy


def test_a_provider_that_says_not_to_try_again_is_believed():
    assert not error(500, body(), x_should_retry="false").may_retry
    assert error(500, body(), x_should_retry="true").may_retry
    assert not error(400, body(), x_should_retry="true").may_retry


# -- requests that are at fault


@pytest.mark.parametrize(
    "said",
    [
        body("A tool call has no result.", param="messages.[3].role"),
        body("A tool call has no result.", param="messages[3].tool_calls"),
        body("messages.3: `tool_use` ids were found without `tool_result` blocks"),
    ],
)
def test_a_message_at_fault_is_named_by_its_place(said: bytes):
    found = from_response(WHO, 400, {}, said, place_of=lambda place: place - 1)

    assert isinstance(found, errors.ModelRefusedRequest)
    assert found.position == 2
    assert "about message 3" in str(found)


def test_a_request_that_is_too_long_says_so():
    found = error(400, body(code="context_length_exceeded"))

    assert isinstance(found, errors.ModelContextExceeded)
    assert found.position is None
    assert "shortened history" in found.remedy
    assert isinstance(error(413), errors.ModelContextExceeded)


@pytest.mark.parametrize(
    "said",
    [
        body("the request exceeds the available context size, try increasing it", type="exceed_context_size_error"),
        body("This model's maximum context length is 4096 tokens. However, you requested 5000 tokens."),
        body("prompt is too long: 210000 tokens > 200000 maximum"),
        body("The input token count (1048580) exceeds the maximum number of tokens allowed (1048576)."),
    ],
)
def test_engines_say_in_many_words_that_a_history_is_too_long(said: bytes):
    assert isinstance(error(400, said), errors.ModelContextExceeded)


# -- inside a stream


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        (body(type="overloaded_error"), errors.ModelUnavailable),
        (body(type="server_error"), errors.ModelUnavailable),
        (body(), errors.ModelUnavailable),
        (body(code=502), errors.ModelUnavailable),
        (body(code=429), errors.ModelRateLimited),
        (body(code="rate_limit_exceeded", type="requests"), errors.ModelRateLimited),
        (body(type="invalid_request_error"), errors.ModelRefusedRequest),
        (body(type="invalid_request_error", code="invalid_api_key"), errors.ModelUnauthorised),
    ],
)
def test_an_error_inside_a_stream_is_what_it_would_have_been_as_a_status(said: bytes, kind: type[errors.ModelError]):
    assert type(from_stream(WHO, said)) is kind
