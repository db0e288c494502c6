"""More of the table: bugs that the simulation must find. Values only.

The checkers named are those that are meant for the bug. Every row's seed is one of the same 200: worlds with everything in them
(`tests.simulation.profile.NEWEST`).
"""

from __future__ import annotations

from tests.mutations.table import STORE, Mutation

SEEDS = range(90_000, 90_200)

SIMULATED = (
    Mutation(
        "a listing alone proves a pod",
        "shared/ledger/settle.py",
        "return charge.alias is None and covers(charge.demand, listed)",
        "return charge.alias is None and bool(listed)",
        "S4|S11",
        90008,
        381,
    ),
    Mutation(
        "a charge does not widen",
        "shared/ledger/settle.py",
        "charge.possible = widen(charge.possible, possible_zones(charge.demand, node.basis, bound))",
        "charge.possible = charge.possible or possible_zones(charge.demand, node.basis, bound)",
        "S11",
        90072,
        465,
    ),
    Mutation(
        "a pod that ended keeps its charge",
        "shared/ledger/pods.py",
        "        touched = (*touched, entry.node)\n        take(ledger, entry, at.position)",
        "        touched = (*touched, entry.node)",
        "S9|ledger|L2",
        90002,
    ),
    Mutation(
        "another pod of the name counts as bound",
        "services/binder/core.py",
        "    if reply.uid != work.uid:",
        "    if False:",
        "S5|S7|L2|L3",
        90148,
        425,
    ),
    Mutation(
        "a pod that stands elsewhere counts as bound here",
        "services/binder/core.py",
        "    if reply.node == work.node:",
        "    if reply.node:",
        "S5|S7|S4",
        90003,
        353,
    ),
    Mutation(
        "an intent does not compete with a withdrawal",
        "services/binder/handlers.py",
        "Draft(stream, fact) if version is None else Draft(stream, fact, version)",
        "Draft(stream, fact)",
        "S4|S7|S9",
        90010,
    ),
    Mutation(
        "reservations on a node that ended stay",
        "services/scheduler/reserving/withdrawals.py",
        "    for name in changed:\n        node",
        "    for name in ():\n        node",
        "L5",
        90053,
    ),
    Mutation(
        "a node that left is kept for ever",
        "shared/ledger/nodes.py",
        "    return silent and not node.charges and not node.claims",
        "    return False",
        "S9",
        90138,
        321,
    ),
    Mutation(
        "a report that was kept back shuts out a later boot",
        "services/topology_store/handlers.py",
        '        return self._boot(report.node) not in ("", report.boot_id, boot)',
        "        return False",
        "S10",
        90048,
        260,
    ),
    Mutation(
        "a late report is news",
        STORE,
        "    if report.boot_time_ms <= max(before.boot_time_ms, known.heard_ms):\n        reason",
        "    if False:\n        reason",
        "S10",
        90000,
        248,
    ),
    Mutation(
        "an older epoch appends",
        "shared/eventlog/memory.py",
        "if 0 < commit.epoch < current:",
        "if False:",
        "S3",
        90000,
        322,
    ),
    Mutation(
        "a dirty mark moves its node before the reservations of its batch",
        "services/scheduler/reserving/proposals.py",
        "        made.update([draft.stream for draft in proposal.drafts])",
        "        made.update([draft.stream for draft in proposal.drafts] if proposal.uid else ())",
        "S12",
        90001,
        400,
    ),
    Mutation(
        "a commit stands without the one that it follows",
        "shared/eventlog/memory.py",
        "not commit.follows or appended.get(commit.follows, False)",
        "True",
        "S12",
        90003,
        400,
    ),
    Mutation(
        "a lost answer is taken for a no",
        "services/binder/core.py",
        "    if reply.read:\n        return _judge_read(work, reply)\n",
        "    if reply.status in (0, 503):\n        return binding.BindRefused(work.uid, work.node, 'other_node', reply.message)\n"
        "    if reply.read:\n        return _judge_read(work, reply)\n",
        "S5",
        90003,
        352,
    ),
    Mutation(
        "one list that lacks much ends what runs",
        "services/scheduler/observing/news.py",
        "    return absent > MASS_SHARE * known",
        "    return False",
        "S4",
        90017,
        246,
    ),
    Mutation(
        "what went between two lists lives on",
        "services/scheduler/observing/observer.py",
        "            fresh = [fact for fact in absent if _address(fact)[1] not in doubted]",
        "            fresh = [] if doubted else absent\n"
        "            absent = [fact for fact in absent if not doubted or _address(fact)[1] in doubted]",
        "S9|L1|L2|L3|L",
        90051,
    ),
    Mutation(
        "a victim is evicted before it is rehearsed and intended",
        "services/binder/evictor.py",
        "            if each.intended and self._due(each):",
        "            if self._due(each):",
        "S7",
        90055,
    ),
    Mutation(
        "equals are evicted",
        "services/scheduler/preemption/search.py",
        "        lower = entry.pod.priority < self._pod.priority",
        "        lower = entry.pod.priority <= self._pod.priority",
        "S7",
        90150,
    ),
)
