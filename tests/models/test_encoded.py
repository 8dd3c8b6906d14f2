"""A message is encoded once, however often its history is sent."""

from __future__ import annotations

from checkrein.models import Message, User
from checkrein.models.wire import EncodedMessages


class Counting:
    def __init__(self) -> None:
        self.times = 0

    def __call__(self, message: Message) -> bytes:
        self.times += 1
        assert isinstance(message, User)
        return message.text.encode()


def test_a_message_that_was_sent_before_is_not_encoded_again():
    encode = Counting()
    encoded = EncodedMessages(encode)
    history = [User("one"), User("two")]

    assert encoded.all(history) == [b"one", b"two"]
    history.append(User("three"))
    assert encoded.all(history) == [b"one", b"two", b"three"]

    assert encode.times == 3


def test_what_was_not_used_for_long_is_forgotten_and_what_is_used_stays():
    encode = Counting()
    encoded = EncodedMessages(encode, limit=10_000)
    kept = [User("kept")]

    for number in range(1000):
        encoded.all([*kept, User(f"{number}" * 100)])

    assert encode.times == 1001
    assert len(encoded._recent) + len(encoded._older) < 30


def test_a_history_larger_than_the_limit_is_still_encoded_only_once():
    encode = Counting()
    encoded = EncodedMessages(encode, limit=100)
    history = [User(f"{number}" * 100) for number in range(20)]

    for _ in range(5):
        assert encoded.all(history) == [message.text.encode() for message in history]

    assert encode.times == 20


def test_a_message_in_the_place_of_another_that_is_gone_is_not_taken_for_it():
    encoded = EncodedMessages(Counting(), limit=1)

    for number in range(2000):
        # Freed at once, so that the next one is likely to have the same identity.
        assert encoded.all([User(str(number))]) == [str(number).encode()]
