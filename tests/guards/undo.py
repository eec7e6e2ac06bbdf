"""Guards of what is undone, and of effects that commit with their row."""

from tests.guards.values import Guard

UNDO = "tests/integration/test_undo.py::"
DOCTOR = "tests/integration/test_undo_doctor.py::"
ENDING = "tests/unit/core/test_ending.py::"
BY_HAND = "tests/integration/test_undone_by_hand.py::"
TOGETHER = "tests/concurrency/test_transactional_at_once.py::"

GUARDS = (
    Guard(
        "an undo begins when every send has landed",
        "P5, P6, rule 3",
        "core/ending.py",
        "must_land = ending.has_cleanup or ending.undoes or ending.reason == EndingReason.CANCEL",
        "must_land = ending.has_cleanup or ending.reason == EndingReason.CANCEL",
        ENDING + "test_what_becomes_of_a_run_that_is_ending",
    ),
    Guard(
        "one undo after another",
        "P6",
        "core/ending.py",
        "    if ending.phase in AT_WORK and ending.has_open_steps:",
        "    if ending.phase is EndingPhase.CLEANUP and ending.has_open_steps:",
        ENDING + "test_what_becomes_of_a_run_that_is_ending",
    ),
    Guard(
        "what was confirmed last is undone first",
        "P6",
        "ledger_undo.py",
        'F("confirmed_number").desc(nulls_last=True), "-settled_at", "-id"',
        'F("confirmed_number").asc(nulls_last=True), "settled_at", "id"',
        UNDO + "test_a_step_that_returns_compensate_has_all_undone_newest_first",
    ),
    Guard(
        "what a run started is undone before what it did",
        "P6",
        "endings.py",
        "has_children=undoes and undo_children.waits(run),",
        "has_children=False,",
        "tests/integration/test_undo_children.py::"
        "test_a_child_that_ended_well_is_undone_before_what_the_run_did_itself",
    ),
    Guard(
        "an effect is undone in the commit of its undo's receipt",
        "P5, P15",
        "ledger_answers.py",
        "    ledger_undo.follow(run_locked, step_locked, row, now)\n",
        "",
        UNDO + "test_a_step_that_returns_compensate_has_all_undone_newest_first",
    ),
    Guard(
        "a person's word on an undo counts for what it undoes",
        "P5, P15",
        "services/reconcile.py",
        "    ledger_undo.follow(run, step, row, now)\n",
        "",
        DOCTOR + "test_an_undo_that_nobody_can_look_up_is_settled_by_a_person",
    ),
    Guard(
        "what is undone is never taken for done",
        "P3",
        "ledger.py",
        "if row.state in (EffectState.PLANNED, EffectState.ABSENT, EffectState.REJECTED, EffectState.UNDONE):",
        "if row.state == EffectState.UNDONE:\n        return Stored(row.receipt)\n"
        "    if row.state in (EffectState.PLANNED, EffectState.ABSENT, EffectState.REJECTED):",
        DOCTOR + "test_what_is_undone_is_done_anew_under_another_key",
    ),
    Guard(
        "an undo that cannot go on leaves the others",
        "P10, P15",
        "progress.py",
        "    decision = unparked(decision) if step.is_undo else decision\n",
        "",
        UNDO + "test_an_undo_whose_tries_are_used_up_fails",
    ),
    Guard(
        "what an end left standing makes it a failed one",
        "P6, P15",
        "undoing.py",
        '    if left:\n        return "fail_compensation", facts\n',
        "",
        UNDO + "test_an_undo_that_fails_leaves_the_others_and_the_end_says_what_is_left",
    ),
    Guard(
        "a child is not undone alone while its parent goes on",
        "P2",
        "services/compensate.py",
        "    if parent is not None and parent.ended_at is None:",
        "    if parent is None and run.parent_id is not None:",
        "tests/integration/test_undo_children.py::test_a_child_whose_parent_goes_on_is_not_undone_alone",
    ),
    Guard(
        "a transactional effect commits under its lease",
        "P2",
        "ledger_together.py",
        "    ledger.check_lease(step, lease)\n",
        "",
        TOGETHER + "test_a_worker_that_loses_its_lease_while_the_function_runs_leaves_nothing",
    ),
    Guard(
        "a transactional effect commits in a run that goes on",
        "P6, P7",
        "ledger_together.py",
        "    ledger.check_may_begin(run, step, now)\n",
        "",
        "tests/integration/test_transactional_effects.py::test_a_budget_that_is_used_up_rolls_it_back",
    ),
    Guard(
        "a transactional effect is done once",
        "P3",
        "ledger_together.py",
        "        return Stored(before.receipt)",
        "        pass",
        "tests/integration/test_transactional_effects.py::"
        "test_a_death_after_the_commit_leaves_the_receipt_and_nothing_is_done_again",
    ),
    Guard(
        "a transactional effect writes here alone",
        "P4",
        "ledger_together.py",
        "        if alias != database():",
        "        if alias == database():",
        "tests/integration/test_transactional_elsewhere.py::test_writes_elsewhere_are_refused_and_reads_are_not",
    ),
    Guard(
        "a write elsewhere is seen behind a WITH",
        "P4",
        "ledger_together.py",
        " and _WRITES.search(sql) is None)",
        ")",
        "tests/integration/test_transactional_elsewhere.py::test_what_writes_in_other_words_is_refused_too",
    ),
    Guard(
        "what was begun outside a transaction is not taken for done",
        "P3, P5",
        "ledger_together.py",
        "if before.state not in (EffectState.CONFIRMED, EffectState.REVERSED):",
        "if before is None:",
        "tests/integration/test_transactional_effects.py::"
        "test_what_was_begun_outside_a_transaction_is_not_taken_for_done",
    ),
    Guard(
        "an effect that becomes transactional is another structure",
        "P8",
        "core/fingerprint.py",
        '["transactional"] if effect.transactional else []',
        "[]",
        "tests/unit/core/test_fingerprint.py::test_what_is_structure",
    ),
    Guard(
        "only of what could not be undone can be said that it is, by hand",
        "P5, P15",
        "services/given_back.py",
        "    if row.state != EffectState.UNDO_FAILED and not is_left:",
        "    if False:",
        BY_HAND + "test_what_was_done_well_or_is_undone_is_refused",
    ),
    Guard(
        "nothing is given back by hand while its undo may still happen",
        "P5",
        "services/given_back.py",
        "    if ledger_undo.has_open_undo(row):",
        "    if False:",
        BY_HAND + "test_while_its_undo_may_still_happen_it_is_refused",
    ),
    Guard(
        "what was given back by hand, and then undone after all, is loud",
        "P4",
        "ledger_undo.py",
        "        _given_back_twice(run_locked, step_locked, row, now)",
        "        pass",
        BY_HAND + "test_an_undo_that_has_happened_after_all_is_loud",
    ),
    Guard(
        "a run with something that could not be undone is not removed",
        "P15",
        "services/cleanup.py",
        "            effects.filter(state=EffectState.UNDO_FAILED)",
        "            effects.none()",
        "tests/integration/test_cleanup.py::test_what_somebody_may_still_need_is_kept_and_the_reason_said",
    ),
    Guard(
        "what a provider said of one run is not told in others",
        "P14",
        "provider_state.py",
        "{_kind_of(answer)}",
        ": {answer.error.text if answer.error else ''}",
        "tests/integration/test_breakers.py::test_what_a_provider_said_of_one_run_is_not_told_to_those_who_wait",
    ),
)
