"""More of the table: constraints of Kubernetes and its API. Values only."""

from __future__ import annotations

from tests.mutations.table import Mutation

CONSTRAINTS = "services/scheduler/deciding/constraints"
ASKED, VOLUMES = "tests/scheduler/default/test_constraints.py", "tests/scheduler/default/test_volumes.py"

KUBERNETES = (
    Mutation(
        "the binding of a pod that terminates is sent as long as a finalizer holds the pod",
        "services/binder/core.py",
        "    if reply.terminating:",
        "    if False:",
        "tests/binder/test_core.py",
    ),
    Mutation(
        "a reservation outlives its node where another came in its place",
        "services/scheduler/reserving/withdrawals.py",
        "    since = node.observed_at if node.observed is not None else sys.maxsize",
        "    since = 0 if node.observed is not None else sys.maxsize",
        "tests/scheduler/default/test_reports_and_nodes.py -k in_its_nodes_place",
    ),
    Mutation(
        "a race that was lost for a pod is held against its node",
        "services/scheduler/handlers.py",
        " and outcome.stream == streams.node(proposal.node):",
        ":",
        "tests/scheduler/test_decider.py -k lost_for_the_pod",
    ),
    Mutation(
        "victims go though their nomination ended while it was rehearsed",
        "services/binder/evictor.py",
        "if asked.get(each.uid) is each and each.preemptor == preemptor]",
        "]",
        "tests/binder/test_evictions.py -k rehearsal_is_answered",
    ),
    Mutation(
        "the rule of a running pod is not held against newcomers",
        f"{CONSTRAINTS}/pod_affinity.py",
        "        for held, nodes in around.neighbours.keeping(self.name):",
        "        for held, nodes in ():",
        f"{ASKED} -k newcomers",
    ),
    Mutation(
        "a running pod's rule looks into no namespace by its labels",
        f"{CONSTRAINTS}/selectors.py",
        "    chosen = named or each is None or all(",
        "    chosen = named or each is None and all(",
        f"{ASKED} -k running_pods_rule",
    ),
    Mutation(
        "a pod's own rule looks into every namespace",
        f"{CONSTRAINTS}/selectors.py",
        '    return _selection(kept, found.union(kept["namespaces"])',
        "    return _selection(kept, (), False and found",
        f"{ASKED} -k own_rules",
    ),
    Mutation(
        "host ports clash whatever their protocol",
        f"{CONSTRAINTS}/host_ports.py",
        "    return left[0] == right[0] and left[2] == right[2] and same_address",
        "    return left[2] == right[2] and same_address",
        f"{ASKED} -k host_port_is_taken",
    ),
    Mutation(
        "PreferNoSchedule counts for nothing",
        f"{CONSTRAINTS}/preferences.py",
        "        if worst:",
        "        if False and worst:",
        f"{ASKED} -k whichever",
    ),
    Mutation(
        "preferred affinity counts for nothing",
        f"{CONSTRAINTS}/preferences.py",
        "        if most:",
        "        if False and most:",
        f"{ASKED} -k prefer_no_schedule",
    ),
    Mutation(
        "a volume is reached from everywhere",
        f"{CONSTRAINTS}/volumes.py",
        "    if volume.terms and not any(",
        "    if False and not any(",
        f"{VOLUMES} -k reached",
    ),
    Mutation(
        "a CSINode's limit is one too high",
        f"{CONSTRAINTS}/volumes.py",
        "set()) | wanted) > most",
        "set()) | wanted) > most + 1",
        f"{VOLUMES} -k attaches_no_more",
    ),
    Mutation(
        "a shared volume counts once a pod",
        f"{CONSTRAINTS}/volumes.py",
        " and len(_attached(node, texts, around).get(driver, set()) | wanted) > most",
        "",
        f"{VOLUMES} -k counts_once",
    ),
    Mutation(
        "what was attached is never worked out again when a claim is bound",
        f"{CONSTRAINTS}/volumes.py",
        " or known[0] != around.surroundings.bindings",
        "",
        f"{VOLUMES} -k bound_later",
    ),
    Mutation(
        "what was attached is never worked out again when a pod goes",
        f"{CONSTRAINTS}/neighbours.py",
        "        self.derived.pop(node, None)\n",
        "",
        f"{VOLUMES} -k attaches_no_more",
    ),
    Mutation(
        "ReadWriteOncePod is as ReadWriteOnce",
        f"{CONSTRAINTS}/volumes.py",
        "        if known.alone and held",
        "        if False and held",
        f"{VOLUMES} -k one_pod",
    ),
    Mutation(
        "a claim wakes nobody",
        "services/scheduler/surroundings/stirred.py",
        "        return any(claim in told",
        "        return False and any(claim in told",
        f"{VOLUMES} -k waits_for_its_claim",
    ),
    Mutation(
        "a stream without its mark is a list",
        "shared/kube/client.py",
        '            raise NotServedError(f"watch of',
        '            yield Listed(found.take().items, "1")\n            return\n            raise NotServedError(f"watch of',
        "tests/kube/test_initial_events.py -k without_its_mark",
    ),
    Mutation(
        "nominated pods of other schedulers hold nothing",
        f"{CONSTRAINTS}/nominated.py",
        "    for each in nominations.values():",
        "    for each in ():",
        "tests/scheduler/default/test_nominated.py -k leave_the_room",
    ),
    Mutation(
        "zones are taken that another scheduler evicts pods for",
        f"{CONSTRAINTS}/nominee_zone.py",
        "charge.zones.get(zone, NONE_TAKEN)) for zone",
        "NONE_TAKEN) for zone",
        "tests/scheduler/default/test_nominee_zone.py -k take_the_zone",
    ),
    Mutation(
        "nominees of one priority wait for each other",
        f"{CONSTRAINTS}/nominated.py",
        "and (own is None or own.node != each.node)",
        "and each.pod_uid != pod.uid",
        "tests/scheduler/default/test_nominee_zone.py -k of_one_priority",
    ),
    Mutation(
        "a resize under way counts for nothing",
        "services/scheduler/observing/resized.py",
        "    return msgspec.structs.replace(pod, containers=containers, pod_level=whole)",
        "    return pod",
        "tests/scheduler/observer/test_resized.py",
    ),
    Mutation(
        "a gated pod is decided",
        "services/scheduler/core.py",
        '        held_back = f"pod/{uid}" in self._aside or entry.pod.constraints.gates or uid in self.asides.barred',
        '        held_back = f"pod/{uid}" in self._aside or uid in self.asides.barred',
        "tests/scheduler/default/test_setting_aside.py -k gated",
    ),
    Mutation(
        "pod-level resources count for nothing on the node",
        "shared/domain/effective.py",
        "    if pod.pod_level is not None:",
        "    if False and pod.pod_level is not None:",
        "tests/domain -k level",
    ),
)
