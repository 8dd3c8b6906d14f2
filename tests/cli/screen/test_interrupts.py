"""Ctrl-C, press by press."""

from __future__ import annotations

import pytest

from checkrein.cli.attach import Interrupts, Press
from checkrein.cli.screen.terminal import PATIENCE_SECONDS, Unheard
from checkrein.core.enums import TERMINAL, Status


def presses(interrupts: Interrupts, *statuses: Status) -> list[Press]:
    """One press in each of these statuses."""
    pressed = []
    for status in statuses:
        interrupts.saw(status)
        pressed.append(interrupts.press())
    return pressed


def test_the_first_pauses_the_second_cancels_the_third_kills():
    pressed = presses(Interrupts(owns=True), Status.RUNNING, Status.PAUSED, Status.CANCELLING)

    assert pressed == [Press.PAUSE, Press.CANCEL, Press.KILL]


def test_they_count_however_little_the_run_reacts():
    pressed = presses(Interrupts(owns=True), Status.RUNNING, Status.RUNNING, Status.RUNNING)

    assert pressed == [Press.PAUSE, Press.CANCEL, Press.KILL]


def test_the_first_press_on_a_paused_run_destroys_nothing():
    pressed = presses(Interrupts(owns=True), Status.PAUSED, Status.PAUSED)

    assert pressed == [Press.IS_PAUSED, Press.CANCEL]


def test_while_it_is_being_cancelled_one_press_warns_and_the_next_kills():
    pressed = presses(Interrupts(owns=True), Status.CANCELLING, Status.CANCELLING)

    assert pressed == [Press.IS_CANCELLING, Press.KILL]


def test_a_run_that_was_resumed_begins_anew():
    interrupts = Interrupts(owns=True)

    pressed = presses(interrupts, Status.RUNNING)
    interrupts.saw(Status.PAUSED)
    pressed += presses(interrupts, Status.RUNNING)

    assert pressed == [Press.PAUSE, Press.PAUSE]


@pytest.mark.parametrize("status", [*Status])
def test_where_the_run_is_only_watched_it_always_leaves(status: Status):
    assert presses(Interrupts(owns=False), status) == [Press.LEAVE]


@pytest.mark.parametrize("status", sorted(TERMINAL))
def test_once_the_run_has_ended_it_leaves(status: Status):
    assert presses(Interrupts(owns=True), status) == [Press.LEAVE]


def test_the_last_resort_needs_three_presses_that_nobody_heard_for_a_while():
    unheard = Unheard()

    assert not unheard.press(0.0)
    assert not unheard.press(0.1)
    assert not unheard.press(PATIENCE_SECONDS - 0.1), "three quick ones may only be impatience"
    assert unheard.press(PATIENCE_SECONDS)


def test_a_press_that_was_heard_does_not_count_towards_the_last_resort():
    unheard = Unheard()

    unheard.press(0.0)
    unheard.press(1.0)
    unheard.heard()

    assert not unheard.press(9.0)
