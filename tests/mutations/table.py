"""The table of planted bugs: file, text, replacement, and the test that must fail. Values only.

`old` must occur in the file exactly once; a test checks this. `catcher` is an argument of pytest.
In rows of the simulation (`of_simulation`) it is the name of the checker that is meant for the bug,
`seed` is a seed on which that checker found the bug when the row was last tried, and `steps` is the
number of steps with faults until then.
"""

from __future__ import annotations

from typing import NamedTuple

HISTORY, LEASES, PRUNE, APPEND = (
    "migrations/versions/0003_history.py",
    "migrations/versions/0004_sessions_of_leases.py",
    "migrations/versions/0012_pruning.py",
    "migrations/versions/0017_commit_ids.py",
)
POSTGRES = "tests/eventlog/test_postgres.py"
LATER, PROMISES = "tests/eventlog/test_history.py", "tests/eventlog/test_postgres_promises.py"
CURSOR, CONSUMER = "shared/eventlog/cursor.py", "shared/runtime/consumer.py"
LEADERSHIP, RELAY = "shared/runtime/leadership.py", "shared/runtime/relay.py"
PROJECTOR, STORE = "shared/runtime/projector.py", "services/topology_store/core.py"


class Mutation(NamedTuple):
    """One planted bug."""

    name: str
    file: str
    old: str
    new: str
    catcher: str
    seed: int = -1
    steps: int = 500


TESTED = (
    Mutation(
        "a change of lease does not wait for the append in flight",
        LEASES,
        "    PERFORM 1 FROM counter FOR UPDATE;\n    SELECT * INTO held",
        "    SELECT * INTO held",
        f"{LATER} -k in_flight",
    ),
    Mutation(
        "a lease outlives a clock that was set back",
        LEASES,
        "WHERE l.role = the_role AND l.expires_at > clock_timestamp() +",
        "WHERE false AND l.expires_at > clock_timestamp() +",
        f"{LATER} -k clock",
    ),
    Mutation(
        "an older epoch appends",
        APPEND,
        "IF epochs[c] > 0 AND epochs[c] < current THEN",
        "IF false THEN",
        f"{POSTGRES} -k epoch",
    ),
    Mutation(
        "expected versions are not looked at",
        APPEND,
        "IF unfollowed OR (expected[d] >= 0 AND expected[d] <> stands) THEN",
        "IF unfollowed THEN",
        f"{POSTGRES} -k conflict",
    ),
    Mutation(
        "a commit sent again is appended again",
        APPEND,
        "IF seen_first IS NOT NULL THEN\n            outcome[c] := 1;",
        "IF false THEN\n            outcome[c] := 1;",
        f"{POSTGRES} -k duplicate",
    ),
    Mutation(
        "a commit sent again is looked for before the version that it made",
        APPEND,
        "topolog_commit_at(streams[d], expected[d] + 1, ids[c]) s;",
        "topolog_commit_at(streams[d], expected[d], ids[c]) s;",
        "tests/eventlog/test_commit_ids.py -k have_a_row",
    ),
    Mutation(
        "ids that earlier releases stored are forgotten",
        APPEND,
        "WHERE s.commit_id IN (topolog_commit_key(ids[c]), ids[c]);",
        "WHERE s.commit_id = topolog_commit_key(ids[c]);",
        "tests/eventlog/test_commit_ids.py -k each_others",
    ),
    Mutation(
        "what was decided on another history is appended",
        APPEND,
        "IF places[c] > 0\n",
        "IF false\n",
        f"{LATER} -k set_back",
    ),
    Mutation(
        "what follows a refused commit is appended",
        APPEND,
        "unfollowed := follows[c] < 0 OR (follows[c] > 0 AND outcome[follows[c]] <> 0);",
        "unfollowed := follows[c] < 0;",
        f"{POSTGRES} -k follows",
    ),
    Mutation(
        "a pruned stream begins again",
        APPEND,
        "IF FOUND AND expected[d] < 0 AND places[c] = 0 THEN",
        "IF false THEN",
        "tests/eventlog/test_pruning.py -k second_life",
    ),
    Mutation(
        "prune forgets the versions of streams",
        PRUNE,
        "SELECT md5(gone.stream)::uuid, gone.version, edge FROM gone",
        "SELECT md5(gone.stream)::uuid, gone.version, edge FROM gone WHERE false",
        "tests/eventlog/test_pruning.py -k second_life",
    ),
    Mutation(
        "the chain leaves the payload out",
        HISTORY,
        "SELECT sha256(payload) ||",
        "SELECT sha256('') ||",
        f"{POSTGRES} -k chain",
    ),
    Mutation(
        "another history goes unnoticed",
        CURSOR,
        'return "" if current is None or current.chain == cursor.chain else "other_history"',
        'return ""',
        "tests/eventlog/test_cursor.py",
    ),
    Mutation(
        "a hole is read over",
        CURSOR,
        "if envelope.position != position + 1:",
        "if False:",
        "tests/eventlog/test_cursor.py",
    ),
    Mutation(
        "a head behind the reader goes unnoticed",
        CURSOR,
        'return "head_behind" if head < max(cursor.position, cursor.promised) else ""',
        'return ""',
        "tests/eventlog/test_cursor.py",
    ),
    Mutation(
        "a relay returns silently when it was overtaken",
        RELAY,
        "raise LeaseLost(str(error)) from error",
        "return",
        "tests/runtime/test_relay.py -k moved",
    ),
    Mutation(
        "a checkpoint that somebody else moved is not noticed",
        CONSUMER,
        "if moved or (",
        "if True or (",
        "tests/runtime/test_consumer.py",
    ),
    Mutation(
        "lag in facts is always 0",
        CONSUMER,
        "behind = max(self._cursor.known - position, 0)",
        "behind = 0",
        "tests/runtime/test_consumer.py -k lag",
    ),
    Mutation(
        "lag in seconds is always 0",
        CONSUMER,
        "set_gauge(names.CONSUMER_LAG_SECONDS, max(age_s, 0.0), consumer=self.name)",
        "set_gauge(names.CONSUMER_LAG_SECONDS, 0.0, consumer=self.name)",
        "tests/runtime/test_consumer.py -k lag",
    ),
    Mutation(
        "a snapshot is kept one position too early",
        PROJECTOR,
        "self._fold.fingerprint, self.place, sealed)",
        "self._fold.fingerprint, Place(self.place.position - 1, self.place.chain), sealed)",
        "tests/runtime/test_projector.py -k spares",
    ),
    Mutation(
        "the store reads on one position before its snapshot",
        PROJECTOR,
        "self.consumer.seek(place.position, place.chain)",
        "self.consumer.seek(place.position - 1)",
        "tests/topology_store/test_following.py -k snapshot",
    ),
    Mutation(
        "a release starts from any checkpoint",
        PROJECTOR,
        "if state is None or not await self._proves(newest):",
        "if state is None:",
        "tests/runtime/test_checkpoints.py -k otherwise",
    ),
    Mutation(
        "a child that dumps a state keeps connections open",
        "shared/runtime/child.py",
        "        os.closerange(0, writing)\n        os.closerange(writing + 1, _MAX_DESCRIPTOR)\n",
        "",
        "tests/runtime/test_child.py -k connection --timeout 90",
    ),
    Mutation(
        "a checkpoint that a killed child left unfinished is kept",
        "shared/runtime/child.py",
        "return result if status == 0 else None",
        "return result",
        "tests/runtime/test_child.py -k early",
    ),
    Mutation(
        "a leader that cannot renew works on",
        LEADERSHIP,
        "if self._clock.monotonic_s() - renewed_s > self._ttl_s * 0.7:",
        "if False:",
        "tests/runtime/test_leadership.py -k renew --timeout 90",
    ),
    Mutation(
        "a leader does not see that its lease is another's",
        LEADERSHIP,
        "if again != lease:",
        "if False:",
        "tests/runtime/test_leadership.py -k taken --timeout 90",
    ),
    Mutation(
        "a lease outlives the session of its holder",
        LEASES,
        (
            "        AND (NOT held.session OR topolog_lease_session(held.role, held.epoch) "
            "IS NOT NULL);"
        ),
        "    ;",
        f"{PROMISES} -k session",
    ),
    Mutation(
        "a member that is gone may still write",
        LEASES,
        "            UPDATE writer w SET epoch = w.epoch + 1 WHERE w.role = gone;",
        "            NULL;",
        f"{POSTGRES} -k silent_member",
    ),
    Mutation(
        "a member that was counted out works on",
        "shared/runtime/membership.py",
        "if lease not in members:",
        "if False:",
        "tests/runtime/test_membership.py -k counted_out --timeout 90",
    ),
    Mutation(
        "a scheduler is not fenced",
        "services/scheduler/handlers.py",
        "epoch=lease.epoch,",
        "epoch=0,",
        "tests/scheduler/test_decider.py -k counted_out",
    ),
    Mutation(
        "a topology-store is not fenced",
        "services/topology_store/handlers.py",
        "epoch=lease.epoch,",
        "epoch=0,",
        "tests/topology_store/test_handlers.py -k counted_out",
    ),
    Mutation(
        "schedulers decide what is another's",
        "services/scheduler/core.py",
        "self._is_ours(entry) and self.shard.has(entry.pod.uid):",
        "self._is_ours(entry):",
        "tests/scheduler/test_sharing.py -k apart",
    ),
    Mutation(
        "schedulers meet on every node",
        "services/scheduler/core.py",
        "self.columns.share(None if shard.alone else shard.has)",
        "self.columns.share(None)",
        "tests/scheduler/test_sharing.py -k apart",
    ),
    Mutation(
        "pods of a member that is gone are nobody's",
        "services/scheduler/core.py",
        "            if uid not in self.queue or entry.pod.gang is not None:\n",
        "            if False:\n",
        "tests/scheduler/test_sharing.py -k gone",
    ),
    Mutation(
        "the evictor is not fenced",
        "services/binder/evictor.py",
        "epoch=turn.lease.epoch,",
        "epoch=0,",
        "tests/binder/test_evictions.py -k overtaken --timeout 90",
    ),
    Mutation(
        "another pod of the name counts as bound",
        "services/binder/core.py",
        "    if reply.uid != work.uid:",
        "    if False:",
        "tests/binder/test_core.py",
    ),
    Mutation(
        "an intent does not compete with a withdrawal",
        "services/binder/handlers.py",
        "Draft(stream, event) if version is None else Draft(stream, event, version)",
        "Draft(stream, event)",
        "tests/binder/test_handlers.py -k made_before",
    ),
    Mutation(
        "what was decided with a lost reservation in mind stands",
        "services/scheduler/handlers.py",
        "            follows=follows,",
        '            follows="",',
        "tests/scheduler/test_decider.py -k lost",
    ),
    Mutation(
        "a superseded boot returns",
        STORE,
        "    if report.boot_id in state.superseded:",
        "    if False:",
        (
            "tests/topology_store/test_core.py tests/topology_store/test_handlers.py -k "
            "'boot or restart'"
        ),
    ),
    Mutation(
        "a late report is news",
        STORE,
        "    if report.boot_time_ms <= max(last.boot_time_ms, state.newest_ms):\n        reason",
        "    if False:\n        reason",
        "tests/topology_store/test_handlers.py -k 'late or old'",
    ),
    Mutation(
        "requests may be read for ever",
        "shared/runtime/http_reading.py",
        "self.reading = self.loop.call_later(self.read_limit_s, self.give_up)",
        "self.reading = self.loop.call_later(1000 * self.read_limit_s, self.give_up)",
        "tests/runtime/test_http.py -k kept --timeout 40",
    ),
    Mutation(
        "metrics need no token",
        "shared/runtime/http_access.py",
        "if not self._is_open(path) and not self._authorized(scope):",
        "if False:",
        "tests/runtime/test_http.py -k token",
    ),
    Mutation(
        "reports are differences for ever",
        STORE,
        "or state.deltas >= FULL_EVERY:",
        "or False:",
        "tests/topology_store/test_core.py -k every_so_many",
    ),
    Mutation(
        "a projection keeps what it folded of another history",
        PROJECTOR,
        "self.state, self.place, self._saved_at = self._fold.initial(), Place(), 0",
        "self.place, self._saved_at = Place(), 0",
        "tests/runtime/test_projector.py -k reset",
    ),
    Mutation(
        "facts can be changed",
        "migrations/versions/0001_event_log.py",
        "    RAISE EXCEPTION 'facts are append-only",
        "    RETURN NEW; RAISE EXCEPTION 'facts are append-only",
        "tests/eventlog/test_immutability.py -k owner",
    ),
    Mutation(
        "the relay goes on without the bus",
        RELAY,
        "                await self._clock.sleep(1.0)",
        "                break",
        "tests/runtime/test_relay.py -k down",
    ),
    Mutation(
        "a node that is lost race after race is tried on",
        "services/scheduler/reserve/exclusions.py",
        "        if races >= CONTESTED_AFTER:",
        "        if False:",
        "tests/scheduler/default/test_exclusions.py -k race",
    ),
    Mutation(
        "a group of zones has room where a pod of unknown zone is given back",
        "services/scheduler/filter/topology/pigeonhole.py",
        "    single = node_info.for_single_zones(base)",
        "    single = base",
        "tests/scheduler/test_cycle_memory_groups.py -k memory_of_a_group",
    ),
    Mutation(
        "an assumed pod makes no spread wider under policy none",
        "services/scheduler/select/cluster.py",
        "                self._arrays.is_open[node_info.slot] = True",
        "                pass",
        "tests/scheduler/test_kernel_bounds.py",
    ),
    Mutation(
        "memory of a pod's earlier containers is free for later ones",
        "services/scheduler/score/least_spread.py",
        "    sums = dict(earlier)",
        "    sums = Amounts()",
        "tests/scheduler/test_predicted_zones.py -k below",
    ),
    Mutation(
        "the kernel's search may reject a pod that runs",
        "services/scheduler/filter/topology/compiled_search.py",
        "            pending.extend((count, pod.is_admitted))",
        "            pending.extend((count, False))",
        "tests/scheduler/test_plain_model.py -k kernel",
    ),
    Mutation(
        "an explanation keeps the refusal of a node that changed",
        "services/scheduler/explain/refusal_table.py",
        "        changed = changed_at > self._changes",
        "        changed = changed_at > changes",
        "tests/scheduler/test_refusal_table.py",
    ),
    Mutation(
        "who is doomed in one state of the node has nothing to lose in another",
        "shared/hints/exploration.py",
        (
            "        if len(self._bases) == 1 or not together.may_be_rejected:\n            return "
            "(together,)"
        ),
        "        if self._bases:\n            return (together,)",
        "tests/scheduler/test_cycle_soundness.py -k from_one_state_alone",
    ),
    Mutation(
        "ends always came before whoever is on his way",
        "shared/hints/exploration.py",
        "        if self._ended_pods:\n",
        "        held = [item for pod in self._ended_pods for item in pod.held]\n"
        "        bases = tuple(self._model.released(base, held) for base in bases)\n"
        "        if not bases:\n",
        "tests/scheduler/test_cycle_ends.py -k had_finished",
    ),
    Mutation(
        "a reservation outlives its node",
        "services/scheduler/reserve/proposals.py",
        "    for name in changed:\n        node",
        "    for name in ():\n        node",
        "tests/scheduler/default/test_reports_and_nodes.py -k takes_a_reservation_back",
    ),
    Mutation(
        "a node that was taken out stays silent",
        STORE,
        "return self.expired and bool(self.node_uid)",
        "return self.expired",
        "tests/topology_store/test_silence.py -k of_the_cluster",
    ),
    Mutation(
        "Postgres answers before it has written",
        "services/embedded/postgres.py",
        'durable = "on" if self.durable else "off"',
        'durable = "off"',
        "tests/embedded/test_servers.py -k durability",
    ),
    Mutation(
        "scope pod asks for whole cores at once",
        "services/scheduler/filter/topology/bounds.py",
        "    requests = [part.amounts[CPU] for part in plan.demand if CPU in part.amounts]",
        "    requests = [part.amounts[CPU] for part in plan.parts if CPU in part.amounts]",
        "tests/scheduler/test_varied_scenes.py -k whole_cores_whatever_the_scope",
    ),
    Mutation(
        "the binder calls again before its outcome is folded",
        "services/binder/handlers.py",
        "return uid not in self._busy and uid not in self._outcome_at",
        "return uid not in self._busy",
        "tests/binder/test_handlers.py -k outcome_is_folded",
    ),
    Mutation(
        "a victim is evicted although the dry run of another was put off",
        "services/binder/evictor.py",
        'if not remaining or any(outcomes[victim.uid] == "again" for victim in remaining):',
        "if not remaining:",
        "tests/binder/test_evictions.py -k every_dry_run",
    ),
    Mutation(
        "an acknowledged commit right after the fold is not remembered",
        "shared/runtime/acknowledged.py",
        "        if last > folded_to:",
        "        if last > folded_to + 1:",
        "tests/runtime/test_acknowledged.py -k right_after",
    ),
    Mutation(
        "a checkpoint whose answer was lost is taken as moved",
        CONSUMER,
        "if moved or (uncertain and await self._checkpoint_now() == position):",
        "if moved or uncertain:",
        "tests/runtime/test_consumer.py -k answer_was_lost",
    ),
    Mutation(
        "a Retry-After is obeyed without a limit",
        "shared/kube/client.py",
        "min(float(header), LONGEST_RETRY_AFTER_S)",
        "float(header)",
        "tests/kube/test_deadlines.py -k retry_after",
    ),
    Mutation(
        "bytes without an event are progress",
        "shared/kube/client.py",
        "            self._remaining_idle_s -= waited_s\n",
        "",
        "tests/kube/test_deadlines.py -k no_progress",
    ),
    Mutation(
        "a stream of events has no end",
        "shared/kube/client.py",
        "            self._remaining_s -= waited_s\n",
        "",
        "tests/kube/test_deadlines.py -k without_an_end",
    ),
    Mutation(
        "full lists follow each other without a pause",
        "services/scheduler/watch/observer.py",
        "relists = 0 if lasts else relists + 1",
        "relists = 0",
        "tests/scheduler/observer/test_observer.py -k back_off",
    ),
    Mutation(
        "a busy server is not probed",
        "services/binder/core.py",
        "return self.status in (0, 401, 403, 429, 502, 503, 504)",
        "return self.status in (0, 401, 403, 502, 503, 504)",
        "tests/binder/test_answers_judged.py -k waited_for_the_server",
    ),
    Mutation(
        "a mirrored object has the deprecated policies",
        "shared/kube/nrt.py",
        '        "attributes": _attributes(report, metadata),\n',
        (
            '        "attributes": _attributes(report, metadata),\n        '
            '"topologyPolicies": ["None"],\n'
        ),
        "tests/kube/test_nrt.py -k deprecated",
    ),
    Mutation(
        "a recurring event at the fold's own position is not reported",
        "services/scheduler/watch/event_writer.py",
        "isinstance(outcome, Duplicate) and outcome.last <= seen.position",
        "isinstance(outcome, Duplicate) and outcome.last < seen.position",
        "tests/scheduler/observer/test_set_back.py -k recurs",
    ),
    Mutation(
        "a bind of a uid under another name is carried out",
        "services/scheduler/extender/extender.py",
        "        if pod.key != key:",
        "        if False and pod.key != key:",
        "tests/scheduler/extender/test_extender.py -k another_name",
    ),
    Mutation(
        "a bind does not notice that its reservation was withdrawn",
        "services/scheduler/extender/extender.py",
        'isinstance(event, ReservationWithdrawn) and event.cause != "unasked":',
        'isinstance(event, ReservationWithdrawn) and event.cause == "":',
        "tests/scheduler/extender/test_extender.py -k withdrawn",
    ),
    Mutation(
        "what one list lacks ends at once",
        "services/scheduler/watch/lists.py",
        "        if unconfirmed or (self.before is None and self.shows_set_back):",
        "        if self.is_mass or (self.before is None and self.shows_set_back):",
        "tests/scheduler/observer/test_false_lists.py -k without_the_right",
    ),
    Mutation(
        "a turn does not end in time",
        "services/scheduler/handlers.py",
        "return self._clock.monotonic_s() - began_s < share * TURN_S",
        "return True",
        "tests/scheduler/test_turns.py -k waking_thousands",
    ),
    Mutation(
        "offered victims stay though they are not needed",
        "services/scheduler/preempt/search.py",
        "    spareable = [uid for uid in candidates if uid in offer and uid not in needed]",
        "    spareable = list[str]()",
        "tests/scheduler/extender/test_victims.py -k not_needed",
    ),
)
