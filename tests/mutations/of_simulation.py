"""Planted bugs that the simulation must find (see `table`). Values only.

Each row names the checker that must find its bug. All seeds are among the same 200, whose worlds
have every fault and feature (`tests.simulation.profile.NEWEST`).
"""

from __future__ import annotations

from tests.mutations.table import STORE, Mutation

SEEDS = range(90_000, 90_200)

SIMULATED = (
    Mutation(
        "a listing alone proves a pod",
        "shared/ledger/confirmation.py",
        "if charge.alias is not None or not covers(charge.demand, listed, report.unlisted):",
        "if charge.alias is not None or not listed:",
        "S4|S11",
        90008,
        381,
    ),
    Mutation(
        "a charge does not widen",
        "shared/ledger/recompute.py",
        "possible = widen(charge.possible, possible_zones(charge.demand, node.basis, bound))",
        "possible = charge.possible or possible_zones(charge.demand, node.basis, bound)",
        "S11",
        90022,
        460,
    ),
    Mutation(
        "what is listed for a pod that ended is free though its namesake holds it",
        "shared/ledger/view.py",
        (
            "    ended = {key for key in node.ended if key not in live and not "
            "is_contradicted(node, key)}"
        ),
        "    ended = set(node.ended)",
        "S11",
        90089,
        295,
    ),
    Mutation(
        "a pod that ended keeps its charge",
        "shared/ledger/pods.py",
        "release_charge(ledger, entry, envelope.position, came, event.finished_s, absent)",
        "pass",
        "S9|ledger|L2",
        90023,
    ),
    Mutation(
        "another pod of the name counts as bound",
        "services/binder/core.py",
        "    if reply.uid != work.uid:",
        "    if False:",
        "S5|S7|L2|L3",
        90004,
        425,
    ),
    Mutation(
        "a pod that stands elsewhere counts as bound here",
        "services/binder/core.py",
        "    if reply.node == work.node:",
        "    if reply.node:",
        "S5|S7|S4",
        90101,
        197,
    ),
    Mutation(
        "an intent does not compete with a withdrawal",
        "services/binder/handlers.py",
        "Draft(stream, event) if version is None else Draft(stream, event, version)",
        "Draft(stream, event)",
        "S4|S7|S9",
        90089,
        202,
    ),
    Mutation(
        "reservations on a node that ended stay",
        "services/scheduler/reserve/proposals.py",
        "    for name in changed:\n        node",
        "    for name in ():\n        node",
        "L5",
        90099,
    ),
    Mutation(
        "a node that left is kept for ever",
        "shared/ledger/nodes.py",
        "        del ledger.nodes[node.name]",
        "        pass",
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
        "    if report.boot_time_ms <= max(last.boot_time_ms, state.newest_ms):\n        reason",
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
        90183,
        66,
    ),
    Mutation(
        "a dirty mark moves its node before the reservations of its batch",
        "services/scheduler/reserve/proposals.py",
        "        made.update([draft.stream for draft in proposal.drafts])",
        "        made.update([draft.stream for draft in proposal.drafts] if proposal.uid else ())",
        "S12",
        90002,
    ),
    Mutation(
        "a commit stands without the one that it follows",
        "shared/eventlog/memory.py",
        "not commit.follows or appended.get(commit.follows, False)",
        "True",
        "S12",
        90022,
        65,
    ),
    Mutation(
        "a lost answer is taken for a no",
        "services/binder/core.py",
        "    if reply.read:\n        return _judge_read(work, reply)\n",
        "    if reply.status in (0, 503):\n        return binding.BindRefused(work.uid, "
        "work.node, 'other_node', reply.message)\n"
        "    if reply.read:\n        return _judge_read(work, reply)\n",
        "S5",
        90158,
        133,
    ),
    Mutation(
        "what one list lacks has ended",
        "services/scheduler/watch/lists.py",
        "        lacked_before = before is not None and address(event).uid in before.lacked",
        "        lacked_before = True",
        "S4",
        90017,
        489,
    ),
    Mutation(
        "what went between two lists lives on",
        "services/scheduler/watch/lists.py",
        "        if unconfirmed or (self.before is None and self.shows_set_back):",
        ("        if self.before is None and (unconfirmed or self.shows_set_back):"),
        "S9",
        90001,
    ),
    Mutation(
        "a victim is evicted before it is rehearsed and intended",
        "services/binder/evictor.py",
        "            if eviction.intended and self._is_due(eviction) and not is_rehearsing:",
        "            if self._is_due(eviction):",
        "S7",
        90055,
    ),
    Mutation(
        "equals are evicted",
        "services/scheduler/preempt/search.py",
        "        if entry.pod.priority >= self._pod.priority or",
        "        if entry.pod.priority > self._pod.priority or",
        "S7",
        90008,
    ),
    Mutation(
        "what a node refused it refuses still after it has changed",
        "services/scheduler/select/cluster.py",
        "self._arrays.changed(node_info)\n        self.evaluator.cache.changed(",
        "self._arrays.changed(node_info)\n        self.evaluator.cache.tightened(",
        "S13",
        90000,
    ),
)
