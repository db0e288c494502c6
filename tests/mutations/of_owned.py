"""Planted bugs of the choice of zones, CPU ids and cards (see `table`). Values only."""

from __future__ import annotations

from tests.mutations.table import Mutation

MERGE, ADMIT, CARDS = (
    "tests/owned/test_merge.py",
    "tests/owned/test_admit.py",
    "tests/owned/test_devices.py",
)

NODES_WITH_CARDS = "tests/scheduler/owned/test_devices_of_nodes.py"
RANKS = "tests/scheduler/owned/test_owned_ranks.py"
CLOSENESS = "tests/scheduler/test_device_closeness.py"
BOOKINGS = "tests/scheduler/owned/test_bookings.py"
BOOKED_CARDS = "tests/scheduler/owned/test_booked_devices.py"

OWNED = (
    Mutation(
        "a booking keeps the zones that its pods have",
        "shared/ledger/charging.py",
        "        zones = _sum(zones, allocation.zones)",
        "        pass",
        f"{BOOKINGS} -k give_it_back",
    ),
    Mutation(
        "a booking keeps the CPUs that its pods have",
        "shared/ledger/charging.py",
        "        cpus &= ~parse_cpus(allocation.cpus)",
        "        pass",
        f"{BOOKINGS} -k cpus_that_its_owners_get",
    ),
    Mutation(
        "a fuller zone comes before the booking's",
        "services/scheduler/owned/admission.py",
        "    _restrict_zones(narrow, allocation, names)",
        "    pass",
        f"{BOOKINGS} -k before_fuller_ones",
    ),
    Mutation(
        "the rest of a booking needs no zone",
        "services/scheduler/owned/admission.py",
        "newcomers = () if is_owned else (remaining,)",
        "newcomers = ()",
        f"{BOOKINGS} -k zone_of_a_pending_admission",
    ),
    Mutation(
        "a booking keeps the cards that its pods have",
        "shared/ledger/charging.py",
        "    devices = tuple([_card_less(card, cards) for card in booked.devices])",
        "    devices = booked.devices",
        f"{BOOKED_CARDS} -k and_no_others",
    ),
    Mutation(
        "a restricted owner takes any card",
        "shared/owned/devices.py",
        "        if not (booked and self.is_restricted):",
        "        if True:",
        f"{BOOKED_CARDS} -k restricted_owner",
    ),
    Mutation(
        "no owner evicts another of its booking",
        "services/scheduler/preempt/search.py",
        "        if entry.drawn_from and entry.drawn_from not in self._bookings:",
        "        if entry.drawn_from:",
        f"{BOOKINGS} -k place_of_another",
    ),
    Mutation(
        "the plugin takes the best set of any division",
        "shared/kubelet/preferred_gpus.py",
        "        == best\n",
        "        <= best\n",
        "tests/kubelet/test_preferred_gpus.py",
    ),
    Mutation(
        "a GPU that the plugin does not take counts as near",
        "shared/ledger/cards.py",
        "if not chosen & ~group.minors]",
        "]",
        f"{CLOSENESS} -k several_partitions",
    ),
    Mutation(
        "a CPU that a pod holds is given again",
        "shared/owned/free.py",
        "cpus=every & ~full & ~node.reserved_cpus",
        "cpus=every & ~node.reserved_cpus",
        f"{ADMIT} -k two_sets",
    ),
    Mutation(
        "a CPU set without zones leaves its CPUs free",
        "shared/owned/free.py",
        "amounts[CPU] = max(amounts.get(CPU, 0), 1000 * count)",
        "pass",
        f"{ADMIT} -k lessens",
    ),
    Mutation(
        "the roomiest zone comes first",
        "shared/owned/allocate.py",
        "key=lambda zone: (free[zone], zone)",
        "key=lambda zone: (-free[zone], zone)",
        f"{ADMIT} -k gives_the_rest",
    ),
    Mutation(
        "what does not fit a mask is dropped",
        "shared/owned/allocate.py",
        "        if missing:\n            return resource",
        "        if False:\n            return resource",
        f"{ADMIT} -k inside_its_mask",
    ),
    Mutation(
        "CPU ids come from any zone",
        "shared/owned/allocate.py",
        "available = trial.usable & machine.in_zone.get(zone, 0)",
        "available = trial.usable & ~taken",
        f"{ADMIT} -k as_many_ids",
    ),
    Mutation(
        "a mask without CPU ids is offered",
        "shared/owned/allocate.py",
        "return (trial.usable & machine.in_zone.get(zone, 0)).bit_count() * 1000 >= amounts[CPU]",
        "return True",
        f"{ADMIT} -k fewer_cpus",
    ),
    Mutation(
        "one more holding leaves its CPUs free",
        "shared/owned/free.py",
        "cpus = free.cpus & ~holding.cpus",
        "cpus = free.cpus",
        f"{ADMIT} -k less_one_holding",
    ),
    Mutation(
        "the demand does not choose the zone",
        "services/scheduler/select/evaluate.py",
        "zone = self._bulk.best_zone(pod_class, node_info)",
        "zone = None",
        f"{RANKS} -k demand_chooses",
    ),
    Mutation(
        "devices of owned nodes count in no zone",
        "services/scheduler/snapshot/owned_state.py",
        "return {min(charge.allocation.zones): devices} if devices else {}",
        "return {}",
        f"{RANKS} -k spared",
    ),
    Mutation(
        "a later drift is not announced",
        "services/binder/admissions.py",
        "is_news = bool(unlike) and unlike != watched.unlike",
        "is_news = False",
        "tests/scheduler/owned/test_owned_zones.py -k other_cpus_later",
    ),
    Mutation(
        "the lower number wins before the score",
        "shared/owned/merge.py",
        "(hint.mask or 0).bit_count(), -hint.score",
        "(hint.mask or 0).bit_count(), hint.mask",
        f"{MERGE} -k score_decides",
    ),
    Mutation(
        "masks of different resources count as aligned",
        "shared/owned/merge.py",
        "common = caring[0].intersection(*caring[1:]) if caring",
        "common = caring[0].union(*caring[1:]) if caring",
        MERGE,
    ),
    Mutation(
        "exclusivity is not looked at",
        "shared/owned/merge.py",
        "        if self.exclusive != REQUIRED:\n            return True",
        "        return True",
        f"{MERGE} -k exclusivity",
    ),
    Mutation(
        "restricted prefers by capacity only",
        "shared/owned/hints.py",
        "is_any = policy == RESTRICTED and not is_by_capacity",
        "is_any = False",
        "tests/vectors/test_vectors.py -k koordinator_owned_node",
    ),
    Mutation(
        "a card gives more than it has",
        "shared/owned/devices.py",
        "name: max(0, size - holding.resources.get(name, 0))",
        "name: size",
        f"{CARDS} -k no_card",
    ),
    Mutation(
        "the best GPUs count in zones that lack them",
        "shared/owned/device_hints.py",
        "chosen == best and not best & ~free.minors_in(GPU, mask)",
        "chosen == best",
        f"{CARDS} -k under_every_mask",
    ),
    Mutation(
        "devices that pending pods may hold count as near",
        "services/scheduler/score/predicted_zones.py",
        "name: max(0, amount - node_info.free_min.get(zone, {}).get(name, amount))",
        "name: 0",
        f"{CLOSENESS} -k pending",
    ),
    Mutation(
        "near devices raise no rank",
        "services/scheduler/select/bulk.py",
        "scores = scores + CLOSER * self._closeness(selection)",
        "pass",
        f"{CLOSENESS} -k one_switch",
    ),
    Mutation(
        "devices that others of the pod take count as near",
        "shared/ledger/cards.py",
        "            + others.get(name, 0)\n",
        "",
        f"{CLOSENESS} -k whichever",
    ),
    Mutation(
        "an assumed pod takes no card",
        "services/scheduler/snapshot/owned_state.py",
        "return devices.less(cards) if is_known else None",
        "return devices",
        f"{NODES_WITH_CARDS} -k gpu_and_shares",
    ),
    Mutation(
        "partitions of the lowest score come first",
        "shared/owned/gpu_choice.py",
        "sorted(groups, reverse=True)",
        "sorted(groups)",
        f"{CARDS} -k partitions",
    ),
    Mutation(
        "a pod whose cards are not known holds none",
        "services/scheduler/owned/admission.py",
        "for device in devices if anywhere else ():",
        "for device in ():",
        f"{NODES_WITH_CARDS} -k any_device",
    ),
    Mutation(
        "a nominated pod claims no card",
        "services/scheduler/owned/admission.py",
        "holdings += (card for claim in claims for card in claim)",
        "pass",
        f"{NODES_WITH_CARDS} -k victims",
    ),
    Mutation(
        "a broken entry of a Device object is a healthy card",
        "shared/kube/device_objects.py",
        "devices[key] = Device(*key, is_healthy=False)",
        "devices[key] = Device(*key)",
        "tests/kube/test_device_objects.py -k broken",
    ),
)
