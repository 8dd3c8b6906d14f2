"""The most telling promises of whole runs once more, with their runs in a real PostgreSQL.

What is imported here runs a second time, on another store. `make torture` has all of them there.
"""

from __future__ import annotations

import pytest

from tests.promises.test_approvals import (  # noqa: F401
    test_a_cancel_withdraws_what_is_pending,
    test_an_approval_survives_a_kill_9,
    test_two_people_decide_and_the_first_one_counts,
    test_what_is_approved_while_paused_is_done_after_the_resume,
)
from tests.promises.test_cancel import (  # noqa: F401
    test_a_call_that_never_began_is_not_undone_and_not_in_doubt,
    test_a_cancel_before_the_first_call_lets_nothing_begin,
    test_a_cancel_that_loses_against_completion_is_told_so,
    test_a_cancel_without_any_runtime_is_in_force_and_undone_once_there_is_one,
    test_a_crash_in_the_middle_of_undoing_is_resumed,
    test_a_queued_run_is_cancelled_before_it_begins,
    test_a_redirect_without_any_runtime_is_delivered_by_the_next_one,
    test_a_repeated_request_is_a_look_up,
    test_a_second_cancel_gets_the_same_receipt,
    test_a_stop_reaches_its_own_run_only,
    test_an_undo_that_fails_three_times_is_left_and_can_be_tried_again_after_the_end,
    test_the_receipt_is_durable_before_it_is_given,
)
from tests.promises.test_caps import test_a_cap_is_still_reached_after_a_restart  # noqa: F401
from tests.promises.test_doubt import (  # noqa: F401
    crash,
    test_a_cancel_undoes_what_is_in_doubt_when_its_owner_is_dead,
    test_a_pause_of_a_run_whose_runtime_was_killed_settles_at_once,
    test_an_idempotent_tool_is_tried_again_by_itself_with_the_same_key,
    test_any_other_tool_waits_for_a_person_and_is_not_done_again,
    test_what_did_not_happen_is_done_with_a_permit_of_its_own,
)
from tests.promises.test_halt import (  # noqa: F401
    elsewhere,
    halting,
    test_a_halt_of_an_agent_ends_all_its_runs_and_no_others,
    test_a_halt_stays_latched_over_a_restart_until_it_is_reset,
    test_no_permit_follows_a_halt_and_the_former_owner_answers_for_its_calls,
    test_what_a_run_delegated_is_halted_with_it,
)
from tests.promises.test_pause import (  # noqa: F401
    test_a_held_def_tool_is_frozen_and_continued_at_resume,
    test_a_pause_closes_the_stream_at_once_and_keeps_what_it_said,
    test_a_pause_in_the_middle_of_pausing_can_be_taken_back,
    test_a_paused_run_leaves_memory_after_a_while_and_comes_back_by_replay,
)
from tests.promises.test_programs import (  # noqa: F401
    test_a_cancel_stops_sub_runs_first_and_undoes_leaves_before_their_parent,
    test_a_parent_finds_its_sub_run_again_after_a_restart,
    test_a_pause_and_a_resume_reach_sub_runs,
    test_a_program_is_replayed_in_a_new_runtime_without_doing_anything_again,
)
from tests.promises.test_redirect import (  # noqa: F401
    test_a_redirect_aborts_a_tool_and_nothing_of_it_goes_on,
    test_a_redirect_that_races_with_completion_is_delivered_or_refused_and_never_lost,
    test_after_two_redirects_every_call_was_permitted_once,
    test_instructions_add_up_when_a_pause_comes_before_the_answer,
)
from tests.promises.test_runtime import (  # noqa: F401
    test_a_shutdown_pauses_durably_and_the_run_goes_on_by_itself,
    test_a_verb_from_another_process_reaches_the_run,
    test_every_start_of_a_call_has_an_earlier_permit,
    test_kill_9_ends_every_tool_and_the_next_runtime_does_not_guess,
)

pytestmark = pytest.mark.anyio


@pytest.fixture
def store(postgres_store: str) -> str:
    return postgres_store
