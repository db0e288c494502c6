"""Planted bugs of the ledger, the hint providers and the events (see `table`). Values only."""

from __future__ import annotations

from tests.mutations.table import Mutation

LEDGER = (
    Mutation(
        "a prediction stays certain whoever may arrive first",
        "shared/ledger/certainty.py",
        "            entry.certain = charge is new or _surely_has_room(node, entry, charge)",
        "            entry.certain = True",
        "tests/scheduler/test_certain_predictions.py -k arrive_first",
    ),
    Mutation(
        "an end in a lower zone leaves a prediction certain",
        "shared/ledger/certainty.py",
        "_is_lowest(node, entry) and _surely_has_room",
        "_surely_has_room",
        "tests/scheduler/test_certain_predictions.py -k no_zone_is_lower",
    ),
    Mutation(
        "a torn pod gets nothing more",
        "shared/ledger/partial_listings.py",
        "    return {zones.pop(): {name: amount for name, amount in rest.items() if amount}}",
        "    return {zones.pop(): {}}",
        "tests/scheduler/test_cycle_torn_listing.py -k rest",
    ),
    Mutation(
        "on a plain node a container takes the highest zone",
        "shared/hints/plain_model.py",
        "            for position in positions:",
        "            for position in reversed(positions):",
        "tests/scheduler/test_plain_model.py",
    ),
    Mutation(
        "on a plain node an end frees more than the zone has",
        "shared/hints/plain_model.py",
        "max(0, min(amount, room))",
        "amount",
        "tests/scheduler/test_plain_model.py",
    ),
    Mutation(
        "a provider that is registered later does not own its resource on plain nodes",
        "shared/hints/plain_model.py",
        "if owner_of(name) == owner}",
        "if owner_of(name) >= 0}",
        "tests/scheduler/test_on_their_way_to_providers.py",
    ),
    Mutation(
        "a sampled order rejects a pod that runs",
        "shared/hints/sample_states.py",
        "        return None if pod.is_admitted else (state, ahead)",
        "        return state, ahead",
        "tests/scheduler/test_ends_search.py -k sampled",
    ),
    Mutation(
        "a stream that was set aside is followed on",
        "shared/events/quarantine.py",
        "self.streams and envelope.stream in self.streams",
        "False",
        "tests/runtime/test_quarantine.py",
    ),
    Mutation(
        "an old fact is not brought up to date",
        "shared/events/upcasting.py",
        (
            '    return {key: value for key, value in old.items() if key != "detail"} | '
            '{"cause": "node_ended"}'
        ),
        "    return old",
        "tests/events/test_vectors.py",
    ),
    Mutation(
        "a list frees a pod that reports list",
        "shared/ledger/view.py",
        "    return bool(listed) and (not uids or ended.absent.uid in uids)",
        "    return False",
        "tests/ledger/test_absent_pods.py",
    ),
    Mutation(
        "an absent pod requests nothing of its node",
        "shared/ledger/recompute.py",
        "            count(node, ended.absent.request, 1 if counts else -1)",
        "            pass",
        "tests/ledger/test_absent_pods.py",
    ),
    Mutation(
        "an end frees memory that another pod holds in two zones",
        "shared/ledger/view.py",
        "    _without_shared_blocks(bound, node, ended)",
        "    pass",
        "tests/ledger/test_charge_covers_kubelet.py -k two_zones",
    ),
    Mutation(
        "an ended block is given back where it was taken",
        "shared/ledger/view.py",
        "    _without_moved_bytes(bound, node, ended)",
        "    pass",
        "tests/ledger/test_charge_covers_kubelet.py -k another_zone",
    ),
    Mutation(
        "a charge stays as narrow as it began",
        "shared/ledger/recompute.py",
        (
            "charge.possible = widen(charge.possible, possible_zones(charge.demand, "
            "node.basis, bound))"
        ),
        "charge.possible = charge.possible or possible_zones(charge.demand, node.basis, bound)",
        "tests/ledger/test_charge_and_proof.py -k widens",
    ),
    Mutation(
        "what a nominee claims is held on its node for certain",
        "shared/ledger/open_holdings.py",
        "    holdings: list[Ways] = [((), tuple(plain))] if plain else []",
        "    holdings: list[Ways] = [(tuple(plain),)] if plain else []",
        "tests/scheduler/test_cycle_known_state.py -k claimed_amounts_are_free",
    ),
    Mutation(
        "who started in the second in which another finished came first",
        "shared/hints/orders.py",
        "0 < admission.clock_s < other.clock_s",
        "0 < admission.clock_s <= other.clock_s",
        "tests/scheduler/test_cycle_ends.py -k before_another_had_finished",
    ),
    Mutation(
        "what a container is being given counts as given",
        "shared/ledger/partial_listings.py",
        "return bool(charge.demand) and any(placement.held for placement in listed)",
        "return False",
        "tests/scheduler/test_cycle_torn_listing.py",
    ),
    Mutation(
        "a history survives a rejected pod",
        "shared/ledger/pods.py",
        "        ledger.nodes[node].since_empty = None\n",
        "        pass\n",
        "tests/ledger/test_since_empty.py -k rejected",
    ),
    Mutation(
        "pods of a history came in the order of the log",
        "shared/ledger/since_empty.py",
        "charge.sent_at, runs_at, charge.started_s)",
        "charge.charged_at, runs_at, charge.started_s)",
        "tests/ledger/test_since_empty.py -k true_state",
    ),
    Mutation(
        "unhealthy devices that nobody lists lie nowhere",
        "shared/ledger/device_views.py",
        "    doubtful = in_doubt(node, policy)\n    hidden",
        '    doubtful = in_doubt(node, "")\n    hidden',
        "tests/scheduler/test_unhealthy_devices.py -k vanished_from_the_listing",
    ),
    Mutation(
        "a resource that vanished whole is offered still",
        "shared/ledger/unhealthy.py",
        "    names = doubted(node)\n",
        "    names = frozenset(_unhealthy(report))\n",
        "tests/scheduler/test_unhealthy_devices.py -k vanished_whole",
    ),
    Mutation(
        "a rejected pod counts as a pod that has held something",
        "shared/ledger/pods.py",
        'event.cause != "rejected"',
        "True",
        "tests/ledger/test_charge_and_proof.py -k rejected_pod",
    ),
    Mutation(
        "zones that were confirmed in another boot are charged",
        "shared/ledger/recompute.py",
        "charge.confirmed_zones, charge.narrowed = {}, False",
        "charge.narrowed = False",
        "tests/ledger/test_charge_and_proof.py -k another_boot",
    ),
    Mutation(
        "a new pod comes after an end that is only supposed",
        "shared/ledger/kubelet_states.py",
        "ended.is_supposed or not all_are_new",
        "not all_are_new",
        "tests/ledger/test_what_if.py -k supposed",
    ),
    Mutation(
        "a pod that was sent before an end of unknown order came after it",
        "shared/ledger/kubelet_states.py",
        "all(pod.sent_at == NOT_SENT_YET for pod in pending)",
        "True",
        "tests/scheduler/default/test_gangs.py -k unknown_end",
    ),
    Mutation(
        "an ended namesake that was only an alias counts as completely listed",
        "shared/ledger/charging.py",
        "return Ended(charge.confirmed and charge.alias is None, 0, lives)",
        "return Ended(charge.confirmed, 0, lives)",
        "tests/ledger/test_ended_names.py",
    ),
)
