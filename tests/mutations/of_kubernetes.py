"""More of the table: constraints of Kubernetes and its API. Values only."""

from __future__ import annotations

from tests.mutations.table import Mutation

CONSTRAINTS = "services/scheduler/filter/constraints"
ASKED, VOLUMES = (
    "tests/scheduler/default/test_constraints.py",
    "tests/scheduler/default/test_volumes.py",
)

HOLDS = "tests/scheduler/default/test_holds.py"
GANGS = "tests/scheduler/default/test_gangs.py"
POD_LEVEL = "tests/scheduler/test_pod_level_managers.py"

KUBERNETES = (
    Mutation(
        "a held node takes other pods",
        "services/scheduler/filter/constraints/held_nodes.py",
        "        if hold.uid != pod.uid",
        "        if False",
        f"{HOLDS} -k names_the_hold",
    ),
    Mutation(
        "a gang is reserved in part",
        "services/scheduler/explain/gang_decisions.py",
        "            self._undo(assumed)\n            return None\n",
        "            pass\n",
        f"{GANGS} -k reserves_nothing",
    ),
    Mutation(
        "a gang that does not fit takes the room of pods of its turn",
        "services/scheduler/explain/gang_decisions.py",
        "                self._placing.assume(placed, pod)\n",
        "                pass\n",
        f"{GANGS} -k plain_reference",
    ),
    Mutation(
        "a gang keeps reservations of a part of it",
        "services/scheduler/reserve/gangs.py",
        "            elif reserved:\n",
        "            elif False:\n",
        f"{GANGS} -k withdraws",
    ),
    Mutation(
        "pods after the minimum wait for the rest of a gang",
        "services/scheduler/reserve/gangs.py",
        "minimum - members.bound - on_their_way",
        "minimum - on_their_way",
        f"{GANGS} -k once_the_minimum",
    ),
    Mutation(
        "the node that lacks most is held",
        "services/scheduler/select/hold_node.py",
        "candidates.append((lack, others, node_info.name, node_info))",
        "candidates.append((-lack, others, node_info.name, node_info))",
        f"{HOLDS} -k lacks_least",
    ),
    Mutation(
        "a node is held that would not take the pod empty",
        "services/scheduler/select/hold_node.py",
        "    return cluster.evaluator.evaluate_harder(pod_class, emptied) != RULED_OUT",
        "    return True",
        f"{HOLDS} -k would_not_take",
    ),
    Mutation(
        "a hold outlives its pod",
        "services/scheduler/reserve/holds.py",
        '        if entry is None or entry.terminating:\n            return "ended"',
        "        if entry is None or entry.terminating:\n            return None",
        f"{HOLDS} -k ends_with_its_pod",
    ),
    Mutation(
        "a set of zones loses no room",
        "services/scheduler/score/strategies/keep_room.py",
        "            lost = self._plain_sets.lost(zones, landing, dict(asked), sizes)",
        "            pass",
        "tests/scheduler/test_keep_room.py -k spared_under_restricted",
    ),
    Mutation(
        "the binding of a pod that terminates is sent as long as a finalizer holds the pod",
        "services/binder/core.py",
        "    if reply.terminating:",
        "    if False:",
        "tests/binder/test_core.py",
    ),
    Mutation(
        "a reservation outlives its node where another came in its place",
        "services/scheduler/reserve/proposals.py",
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
        "            if current.get(victim.uid) is victim and victim.preemptor == preemptor\n",
        "",
        "tests/binder/test_evictions.py -k rehearsal_is_answered",
    ),
    Mutation(
        "the rule of a running pod is not held against newcomers",
        f"{CONSTRAINTS}/pod_affinity.py",
        "        for terms, nodes in view.placed_pods.keeping(self.name):",
        "        for terms, nodes in ():",
        f"{ASKED} -k newcomers",
    ),
    Mutation(
        "who matches one term of an affinity satisfies it",
        f"{CONSTRAINTS}/pod_affinity.py",
        "        domains = [_domains(term.key, counts, view) for term in terms]",
        (
            "        domains = [_domains(term.key, view.placed_pods.counted(term.selection), view) "
            "for term in terms]"
        ),
        f"{ASKED} -k matches_all_terms",
    ),
    Mutation(
        "a group whose pods are on no labelled node has its first pod there",
        f"{CONSTRAINTS}/pod_affinity.py",
        "not any(nodes.any() for nodes in domains)",
        "not has_pods.any()",
        f"{ASKED} -k without_the_label_only",
    ),
    Mutation(
        "a spread by an empty selector counts every pod",
        f"{CONSTRAINTS}/topology_spread.py",
        "                if selected.labels\n",
        "                if selection\n",
        f"{ASKED} -k empty_selector_counts",
    ),
    Mutation(
        "a toleration that compares tolerates nothing",
        f"{CONSTRAINTS}/predicates.py",
        '    if operator in ("Gt", "Lt"):',
        "    if False:",
        "tests/scheduler/test_cycle_placing.py -k tolerated_by_comparison",
    ),
    Mutation(
        "a pod's rule that is lifted wakes who waits for its own node only",
        "services/scheduler/select/cluster.py",
        "        return self._opened_domains.take(self._by_name)",
        "        return []",
        f"{ASKED} -k opens_its_whole_domain",
    ),
    Mutation(
        "a pod waits behind the first of its shape though its labels are others",
        "services/scheduler/select/cluster.py",
        " if has_rules else key_of(pod)",
        " if False else key_of(pod)",
        "tests/scheduler/default/test_no_pod_waits_in_vain.py -k missed_placement[20-budgets20]",
    ),
    Mutation(
        "a rule moves with its node's labels, and wakes nobody",
        "services/scheduler/filter/constraints/pod_affinity.py",
        "            if node is not None and node.name in nodes:",
        "            if False and node is not None and node.name in nodes:",
        f"{ASKED} -k opens_its_whole_domain",
    ),
    Mutation(
        "a running pod's rule looks into no namespace by its labels",
        f"{CONSTRAINTS}/selectors.py",
        '    is_selected = namespace in kept["namespaces"] or observed is None\n    if observed',
        '    is_selected = namespace in kept["namespaces"] or observed is None\n'
        "    if False and observed",
        f"{ASKED} -k running_pods_rule",
    ),
    Mutation(
        "a pod's own rule looks into every namespace",
        f"{CONSTRAINTS}/selectors.py",
        "    return _selection(kept, selected, nothing=not selected)",
        "    return _selection(kept, ())",
        f"{ASKED} -k by_expressions",
    ),
    Mutation(
        "host ports clash whatever their protocol",
        f"{CONSTRAINTS}/host_ports.py",
        "    return wanted[0] == taken[0] and wanted[2] == taken[2] and same_address",
        "    return wanted[2] == taken[2] and same_address",
        f"{ASKED} -k host_port_is_taken",
    ),
    Mutation(
        "PreferNoSchedule counts for nothing",
        "services/scheduler/score/preferences.py",
        "        if worst:",
        "        if False and worst:",
        f"{ASKED} -k whichever",
    ),
    Mutation(
        "preferred affinity counts for nothing",
        "services/scheduler/score/preferences.py",
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
        "        if len(attached | wanted) > most:",
        "        if len(attached | wanted) > most + 1:",
        f"{VOLUMES} -k attaches_no_more",
    ),
    Mutation(
        "a shared volume counts once a pod",
        f"{CONSTRAINTS}/volumes.py",
        "        if len(attached | wanted) > most:",
        "        if True:",
        f"{VOLUMES} -k counts_once",
    ),
    Mutation(
        "what was attached is never worked out again when a claim is bound",
        f"{CONSTRAINTS}/volumes.py",
        " or kept[0] != bindings",
        "",
        f"{VOLUMES} -k bound_later",
    ),
    Mutation(
        "what was attached is never worked out again when a pod goes",
        f"{CONSTRAINTS}/placed_pods.py",
        "        self.derived.pop(node, None)\n",
        "",
        f"{VOLUMES} -k attaches_no_more",
    ),
    Mutation(
        "ReadWriteOncePod is as ReadWriteOnce",
        f"{CONSTRAINTS}/volumes.py",
        "        if observed.alone and users",
        "        if False and users",
        f"{VOLUMES} -k one_pod",
    ),
    Mutation(
        "a claim wakes nobody",
        "services/scheduler/queue/queue.py",
        "            if name in changed_claims or "
        "(claim is not None and claim.volume in changed_volumes):",
        "            if False:",
        f"{VOLUMES} -k waits_for_its_claim",
    ),
    Mutation(
        "a stream without its mark is a list",
        "shared/kube/client.py",
        "            raise NotServedError(\n",
        (
            '            yield Listed(gathered.take().items, "1")\n            return\n      '
            "      raise NotServedError(\n"
        ),
        "tests/kube/test_initial_events.py -k without_its_mark",
    ),
    Mutation(
        "nominated pods of other schedulers hold nothing",
        f"{CONSTRAINTS}/nominated.py",
        "    for nominee in nominations.values():",
        "    for nominee in ():",
        "tests/scheduler/default/test_nominated.py -k leave_the_room",
    ),
    Mutation(
        "a nominee that ended unseen keeps its room",
        "services/scheduler/watch/cluster_objects.py",
        'None if last is None else SurroundingEnded("nomination"',
        'None if last is None or spec.get("nodeName") else SurroundingEnded("nomination"',
        "tests/scheduler/default/test_nominated.py -k ended_unseen",
    ),
    Mutation(
        "zones are taken that another scheduler evicts pods for",
        "services/scheduler/filter/constraints/nominated.py",
        "charge.zones.get(zone, NOTHING)) for zone",
        "NOTHING) for zone",
        "tests/scheduler/default/test_nominee_zone.py -k take_the_zone",
    ),
    Mutation(
        "what a device plugin offers is left to a driver",
        f"{CONSTRAINTS}/given_by_drivers.py",
        "if offered.get(name, 0) <= 0)",
        "if True)",
        "tests/scheduler/extender/test_delegated.py -k names_is_left",
    ),
    Mutation(
        "a cluster without an optional kind is in trouble",
        "services/scheduler/watch/observer.py",
        "isinstance(error, UnknownKindError) and kind in OPTIONAL",
        "False",
        "tests/scheduler/observer/test_observer.py -k serves_no_device_classes",
    ),
    Mutation(
        "certificates without key identifiers are refused",
        "shared/tls.py",
        "    context.verify_flags &= ~ssl.VERIFY_X509_STRICT\n",
        "",
        "tests/kube/test_bare_authorities.py",
    ),
    Mutation(
        "nominees of one priority wait for each other",
        f"{CONSTRAINTS}/nominated.py",
        "nominee.priority == pod.priority and not same_node",
        "nominee.priority == pod.priority and nominee.pod_uid != pod.uid",
        "tests/scheduler/default/test_nominee_zone.py -k of_one_priority",
    ),
    Mutation(
        "a resize under way counts for nothing",
        "services/scheduler/snapshot/resize.py",
        "    return msgspec.structs.replace(pod, containers=containers, pod_level=pod_level)",
        "    return pod",
        "tests/scheduler/observer/test_resized.py",
    ),
    Mutation(
        "a gated pod is decided",
        "services/scheduler/core.py",
        'entry.stage == "pending" and not (entry.terminating or entry.pod.constraints.gates)',
        'entry.stage == "pending" and not entry.terminating',
        "tests/scheduler/default/test_exclusions.py -k gated",
    ),
    Mutation(
        "pod-level resources count for nothing on the node",
        "shared/domain/effective.py",
        "    if pod.pod_level is not None:",
        "    if False and pod.pod_level is not None:",
        "tests/domain -k level",
    ),
    Mutation(
        "under none enough in one zone is a prediction",
        "services/scheduler/score/predicted_zones.py",
        "    if plan.rule.policy != NONE:\n        return by_amounts",
        "    if True:\n        return by_amounts",
        "tests/scheduler/test_predicted_zones.py -k cannot_be_predicted",
    ),
    Mutation(
        "a pool of a pod counts container by container",
        "shared/domain/pod_level.py",
        "    if scope == POD_SCOPE:\n        devices = {",
        "    if False:\n        devices = {",
        f"{POD_LEVEL} -k one_placement",
    ),
    Mutation(
        "containers of a pool may share nothing",
        "shared/domain/pod_level.py",
        "    return someone_shares and running >= total",
        "    return False",
        f"{POD_LEVEL} -k something_to_share",
    ),
    Mutation(
        "pods go to pod-level managers whatever these do",
        "services/scheduler/filter/topology/fit.py",
        "text = pod_level.refusal(pod_class.pod, scope, profile.tracked)",
        'text = ""',
        f"{POD_LEVEL} -k filter_answers",
    ),
    Mutation(
        "an upgraded kubelet knows what its pods request",
        "shared/kubelet/restart.py",
        'earlier.kubelet.config.rules.readmission != "spec":',
        "True:",
        "tests/kubelet/test_versions.py -k reads_no_requests",
    ),
)
