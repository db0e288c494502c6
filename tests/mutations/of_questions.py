"""Planted bugs of the archive, of questions to the log and of plans (see `table`). Values only."""

from __future__ import annotations

from tests.mutations.table import Mutation

QUESTIONS = (
    Mutation(
        "a window of whatif also reads what pods did after its checkpoint",
        "services/whatif/recorded.py",
        "        if envelope.position <= position:\n",
        "        if envelope.position:\n",
        "tests/whatif/test_window.py::"
        "test_a_window_begins_at_the_nearest_checkpoint_and_reads_nothing_before_it",
    ),
    Mutation(
        "the version of a pruned stream at a position is that of its block",
        "shared/eventlog/archive_files.py",
        "event.stream == stream and event.position <= position",
        "event.stream == stream",
        "tests/eventlog/test_pruning.py::test_pruned_events_read_as_if_they_were_rows",
    ),
    Mutation(
        "pruning leaves no checkpoints in the files",
        "services/upkeep/pruning.py",
        "        await _keep_states(log, place, part)\n",
        "",
        "tests/eventlog/test_pruning.py::"
        "test_questions_about_pruned_events_begin_at_checkpoints_in_the_files",
    ),
    Mutation(
        "a short page without a large event is believed",
        "shared/eventlog/postgres_pages.py",
        "if page and page[-1].position >= until else None",
        "if page else None",
        "tests/eventlog/test_large_events.py -k whatever",
    ),
    Mutation(
        "nobody is notified of the batches that came right after another",
        "shared/eventlog/postgres_append.py",
        "self._must_notify |= not notify",
        "pass",
        "tests/eventlog/test_notifying.py",
    ),
    Mutation(
        "a request that its sender gave up is appended later",
        "migrations/versions/0015_append_together.py",
        "IF r.made_at < clock_timestamp() - interval '10 s' THEN",
        "IF false THEN",
        "tests/eventlog/test_shared_flush.py -k abandoned",
    ),
    Mutation(
        "an answer to a request is returned as the sender's own append",
        "migrations/versions/0015_append_together.py",
        "IF r.id IS NULL OR r.outcome IS NOT NULL THEN",
        "IF r.id IS NULL THEN",
        "tests/eventlog/test_shared_flush.py -k whoever",
    ),
    Mutation(
        "a partition goes that somebody still reads",
        "services/upkeep/archiving.py",
        "if not partition.full or partition.last >= status.lowest:",
        "if not partition.full:",
        "tests/eventlog/test_life.py -k lowest",
    ),
    Mutation(
        "labels outlive a redaction",
        "services/upkeep/redacting.py",
        '            for field in ("labels", "annotations"):',
        '            for field in ("annotations",):',
        "tests/eventlog/test_life.py -k masks_the_text",
    ),
    Mutation(
        "appends of any size are taken",
        "shared/eventlog/limits.py",
        "    if len(payload) > MAX_FACT_BYTES:",
        "    if False:",
        "tests/eventlog/test_memory.py",
    ),
    Mutation(
        "an evicted pod that would wait is no obstacle to a plan",
        "services/replay/defragmenting.py",
        "len(placements) == 1 + len(uids) and name in",
        "len(placements) > 0 and name in",
        "tests/replay/test_defragmenting.py -k least_cost",
    ),
    Mutation(
        "a plan exceeds a disruption budget",
        "services/replay/defragmenting.py",
        "budget.uids.intersection(uids)) > budget.allowed",
        "budget.uids.intersection(uids)) > budget.allowed + 1",
        "tests/replay/test_defragmenting.py -k budgets",
    ),
    Mutation(
        "a step is carried out although the plan differs by now",
        "services/upkeep/moving.py",
        "if again is None or list(_targets(again)) != list(_targets(step)):",
        "if False:",
        "tests/replay/test_moving.py -k otherwise_by_now",
    ),
    Mutation(
        "a counted pod takes no room",
        "services/replay/fragmentation.py",
        "            placing.assume(placed, numbered(pod, zones.total()))",
        "            if zones.total() > 3:\n                break",
        "tests/replay/test_fragmentation.py -k one_after_another",
    ),
)
