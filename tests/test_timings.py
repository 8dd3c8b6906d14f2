"""Which times must be longer than which. Each of these was a reason for a number, and stays one."""

from __future__ import annotations

import ast
from pathlib import Path

from checkrein import timings as t
from checkrein.control import control


def test_a_lease_is_given_up_early_enough_to_stop_every_call_before_somebody_else_may_begin():
    assert t.LEASE_MARGIN_SECONDS >= t.TOOL_GRACE_SECONDS + t.KILL_SECONDS
    assert t.LEASE_MARGIN_SECONDS >= t.LET_GO_SECONDS
    assert t.LEASE_MARGIN_SECONDS >= t.TELL_SECONDS


def test_a_lease_outlasts_several_renewals_that_fail():
    every = t.LEASE_SECONDS / t.LEASE_RENEWALS

    assert 3 * every <= t.LEASE_SECONDS - t.LEASE_MARGIN_SECONDS
    assert t.LEASE_MARGIN_SECONDS <= t.LEASE_SECONDS / 3, "of a shorter lease a third is taken"


def test_a_store_is_waited_for_as_long_as_the_lease_allows_and_no_longer():
    assert t.STORE_PATIENCE_SECONDS < t.LEASE_SECONDS - t.LEASE_MARGIN_SECONDS


def test_a_run_whose_owner_is_gone_is_looked_for_more_often_than_leases_run_out():
    assert t.CLAIM_SECONDS < t.RECLAIM_SECONDS < t.LEASE_MARGIN_SECONDS < t.LEASE_SECONDS
    assert t.CONTROL_LEASE_SECONDS < t.LEASE_SECONDS, "who only settles a verb holds a run for less long"


def test_a_stream_is_closed_before_it_is_let_go():
    assert t.CLOSE_SECONDS < t.LET_GO_SECONDS


def test_a_watchdog_kills_nobody_who_is_still_stopping_a_call_in_order():
    assert t.WATCHDOG_GRACE_SECONDS > t.TOOL_GRACE_SECONDS + t.KILL_SECONDS
    assert t.WATCHDOG_GRACE_SECONDS > t.LET_GO_SECONDS
    assert t.WATCHDOG_GRACE_SECONDS > 4 * t.HEARTBEAT_SECONDS, "a watchdog that stood still itself is not a witness"


def test_a_driver_that_does_not_answer_is_killed_while_whoever_asked_still_waits_and_before_its_lease_runs_out():
    killed_after = t.WATCHDOG_GRACE_SECONDS + t.HEARTBEAT_SECONDS

    assert killed_after < t.WAIT_SECONDS
    assert killed_after < t.LEASE_SECONDS - t.LEASE_MARGIN_SECONDS


def test_a_driver_that_waits_for_a_processor_is_given_more_time_and_still_ended_before_its_lease_runs_out():
    ended_after = t.WATCHDOG_LIMIT_SECONDS + t.HEARTBEAT_SECONDS

    assert t.WATCHDOG_LIMIT_SECONDS >= 1.5 * t.WATCHDOG_GRACE_SECONDS
    until_told = control._LOCKED_SECONDS + t.HEARTBEAT_SECONDS
    assert until_told + t.WATCHDOG_LIMIT_SECONDS + t.KILL_SECONDS < t.STORE_PATIENCE_SECONDS, (
        "a process that stands still with the store locked is gone before a verb gives the store up"
    )
    assert ended_after < t.LEASE_SECONDS - t.LEASE_MARGIN_SECONDS
    assert ended_after < t.DRIVER_SILENT_SECONDS / 2, "one for which no stop waits is left alone for longer"
    assert ended_after + t.UNDO_LEAST_SECONDS < t.SETTLE_SECONDS


def test_a_driver_that_is_busy_for_a_while_is_left_alone_unless_a_stop_waits_for_it():
    assert t.WATCHDOG_GRACE_SECONDS < t.SILENT_SECONDS, "whoever waits for a stop is served sooner"
    assert t.SILENT_SECONDS < t.DRIVER_SILENT_SECONDS / 2, "not ready is said long before it is ended"
    assert t.DRIVER_SILENT_SECONDS >= 2 * t.LEASE_SECONDS, "if its lease ran out, others have its runs"
    assert t.DRIVER_SILENT_SECONDS > t.SHUT_DOWN_SECONDS


def test_a_verb_is_waited_for_longer_than_stopping_a_call_takes():
    assert t.WAIT_SECONDS > t.TOOL_GRACE_SECONDS + t.KILL_SECONDS
    assert t.WAIT_SECONDS > t.LET_GO_SECONDS
    assert t.WAIT_SECONDS > t.HOLD_SECONDS


def test_a_call_is_detached_only_after_everything_was_tried_to_stop_it():
    assert t.DETACH_SECONDS > t.TOOL_GRACE_SECONDS + t.KILL_LIMIT_SECONDS
    assert t.DETACH_SECONDS > t.LET_GO_SECONDS + t.CLOSE_SECONDS
    assert t.DETACH_SECONDS > t.WATCHDOG_GRACE_SECONDS + t.HEARTBEAT_SECONDS


def test_a_cancel_that_had_to_detach_a_call_leaves_time_for_several_undos():
    assert t.UNDO_LEAST_SECONDS < t.SETTLE_SECONDS - t.DETACH_SECONDS
    assert t.DETACH_SECONDS + 5 * t.UNDO_LEAST_SECONDS <= t.SETTLE_SECONDS
    assert 3 * t.UNDO_LEAST_SECONDS < t.UNDO_SECONDS


def test_a_cancel_leaves_time_for_one_undo_and_for_a_check():
    assert t.SETTLE_SECONDS >= t.UNDO_SECONDS
    assert t.SETTLE_SECONDS >= t.CHECK_SECONDS
    assert t.SETTLE_SECONDS > t.TOOL_GRACE_SECONDS + t.KILL_LIMIT_SECONDS


def test_the_end_of_a_process_leaves_time_to_pause_and_each_that_waits_for_it_waits_longer():
    pause = max(t.HOLD_SECONDS, t.LET_GO_SECONDS, t.TOOL_GRACE_SECONDS + t.KILL_LIMIT_SECONDS)

    assert pause < t.SHUT_DOWN_SECONDS < t.DRIVER_END_SECONDS < t.DRIVERS_END_SECONDS


def test_what_a_dead_runtime_started_is_ended_by_its_supervisor_before_a_worker_ends_itself():
    looks = t.SUPERVISOR_LOOK_SECONDS + sum(t.SUPERVISOR_AGAIN_SECONDS)

    assert looks + t.KILL_SECONDS < t.ORPHAN_SECONDS


def test_every_time_has_a_sentence_and_nothing_is_imported():
    """Worker processes and the supervisor read it, and must start fast."""
    body = ast.parse(Path(t.__file__).read_text()).body[1:]

    assert [type(node) for node in body] == [ast.Assign, ast.Expr] * (len(body) // 2)
