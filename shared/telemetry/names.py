"""Every metric, span and log event of Topolog, declared once with its help text.

A log event has one sentence of meaning and, if it is logged at warning or above, one remedy.
`docs/metrics.md`, `docs/messages.md` and the tests read the registries in
`shared.telemetry.declare`.
"""

from __future__ import annotations

from shared.telemetry.declare import counter, event, gauge, seconds, sizes, span

# The event log.
APPEND_LATENCY = seconds(
    "topolog_append_latency", "Duration of one append statement with the wait for the counter row."
)
APPEND_BATCH_COMMITS = sizes("topolog_append_batch_commits", "Commits in one append statement.")
APPEND_OUTCOMES = counter(
    "topolog_append_outcomes", "Commits by outcome; a conflict is a lost race.", "outcome"
)
APPEND_RETRIES = counter(
    "topolog_append_retries", "Append statements that were sent again because the answer was lost."
)

# Consumers of the log.
CONSUMER_POSITION = gauge(
    "topolog_consumer_position", "Position up to which a consumer has folded the log.", "consumer"
)
CONSUMER_LAG_FACTS = gauge(
    "topolog_consumer_lag_facts", "Events between a consumer and the log's head.", "consumer"
)
CONSUMER_LAG_SECONDS = gauge(
    "topolog_consumer_lag",
    "Age of the newest event that a consumer has folded, 0 at the head.",
    "consumer",
    unit="s",
)
CONSUMER_FACTS = counter("topolog_consumer_facts", "Events passed to a consumer.", "consumer")
CONSUMER_RESETS = counter(
    "topolog_consumer_resets", "Folds from the start, the state discarded.", "consumer", "cause"
)
CONSUMER_STOPPED = gauge(
    "topolog_consumer_stopped", "1 if a consumer stopped at an event it cannot handle.", "consumer"
)
STREAMS_QUARANTINED = gauge(
    "topolog_streams_set_aside",
    "Quarantined streams: an event in them cannot be folded.",
    "projection",
)
HANDLER_LATENCY = seconds(
    "topolog_consumer_handler_latency",
    "Duration of a consumer's handler for a page of events.",
    "consumer",
)
SNAPSHOTS = counter(
    "topolog_snapshots",
    "Snapshots: saved, loaded, checkpoint, differs, ...",
    "projection",
    "result",
)
FOLDS_COMPARED = counter(
    "topolog_marks_compared",
    "Comparisons of two folds of the same events: with the same or other code, equal or different.",
    "projection",
    "code",
    "result",
)

# Relay and bus.
RELAY_POSITION = gauge("topolog_relay_position", "Position up to which the bus has the log.")
RELAYED = counter("topolog_relayed_facts", "Events that the relay published.")
BUS_CONNECTED = gauge("topolog_bus_connected", "1 while the connection to the bus is up.")
BUS_PUBLISHED = counter("topolog_bus_published", "Messages that the bus acknowledged.", "stream")
BUS_RETRIES = counter("topolog_bus_publish_retries", "Messages published again.", "stream")
BUS_RESUBSCRIBED = counter(
    "topolog_bus_resubscribed", "Subscriptions created again, by cause.", "stream", "cause"
)
BUS_STREAMS_RECREATED = counter(
    "topolog_bus_streams_made_anew",
    "Streams that accepted no messages any more and were created again.",
    "stream",
)

# Process.
LEADER = gauge("topolog_leader", "1 while this process has the lease of the role.", "role")
MEMBERS = gauge(
    "topolog_members",
    "Live members of a role that several processes share, as this process sees them.",
    "role",
)
LEASE_LOST = counter("topolog_leases_lost", "Leases that were lost while their work ran.", "role")
LOG_LINES_LOST = counter(
    "topolog_log_lines_lost",
    "Log lines that could not be written to standard error (full disk, closed pipe).",
)
KUBE_READY = gauge(
    "topolog_kube_ready",
    "1 while the Kubernetes API answers and grants the rights that this service needs.",
)
TASK_RUNNING = gauge(
    "topolog_task_running", "1 while a task runs that must run as long as its service.", "task"
)
LOOP_DELAY = seconds(
    "topolog_event_loop_delay", "Delay of the event loop's timers; above 0.1 s the loop is blocked."
)

SPAN_APPEND = span("log.append", "Commits on their way into the log, from the caller's side.")

STARTED = event("service.started", "The service runs; shows its settings with secrets masked.")
STOPPING = event("service.stopping", "A signal or a failed task ends the service; it drains now.")
STOPPED = event("service.stopped", "The service has ended; shows the exit code.")
TASK_FAILED = event(
    "task.failed",
    "A task of the service failed.",
    "None if the service runs again. Otherwise report the line.",
)
DRAIN_EXCEEDED = event(
    "service.drain_exceeded",
    "Tasks did not end within the grace period and were cancelled.",
    "If it repeats, check the latency of Postgres.",
)
HISTORY_LOST = event(
    "log.history_lost",
    "The log was set back: events that were read are missing, and a new timeline begins.",
    "Find out why (a replica that lagged?); see docs/backup.md.",
)
CONSUMER_RESET = event(
    "consumer.reset",
    "The log is another log or was set back; its state is folded again from the start.",
    "None after a restore or a failover of Postgres. Otherwise check that all services use one "
    "database.",
)
CONSUMER_LIVE = event("consumer.live", "A consumer has caught up with the log.")
CONSUMER_HALTED = event(
    "consumer.halted",
    "A consumer stopped at an event that it cannot handle; the others continue.",
    "`topolog replay verify` names the event. Upgrade the service if a newer release wrote it, "
    "else run `topolog log skip`.",
)
HTTP_EXPOSED = event(
    "http.exposed",
    "Any client that reaches the port can read metrics and state.",
    "Set TOPOLOG_HTTP_TOKEN, or restrict access with a NetworkPolicy.",
)
HTTP_CERTIFICATE = event(
    "http.certificate",
    "The HTTP port cannot use its new certificate or authority, and keeps the old one.",
    "Correct the files that the line names.",
)
LOGIN_TOO_STRONG = event(
    "log.login_too_strong",
    "The service's database login may change events.",
    "Use the login topolog_service, which `topolog database roles` creates.",
)
LOG_NOT_DURABLE = event(
    "log.not_durable",
    "Postgres acknowledges commits before they are on disk; a crash may lose reservations.",
    "Set what the line names to `on`, also for the login and the database (`ALTER ROLE`, `ALTER "
    "DATABASE`), and reload Postgres.",
)
LOG_BYTES = gauge("topolog_log_bytes", "Size of the log's database.")
LOG_LIMIT_BYTES = gauge(
    "topolog_log_limit_bytes", "Size that the log should not exceed (TOPOLOG_LOG_LIMIT_GIB)."
)
LOG_NEAR_LIMIT = event(
    "log.near_limit",
    "The log takes more than four fifths of its limit.",
    "Run `topolog log archive --older-than 30d`, or raise TOPOLOG_LOG_LIMIT_GIB.",
)
STREAM_QUARANTINED = event(
    "stream.set_aside",
    "An event cannot be read or folded; its stream is quarantined until the event is skipped.",
    "`topolog replay verify` names the event. Upgrade the service, or run `topolog log skip`.",
)
LOG_UNAVAILABLE = event(
    "log.unavailable",
    "The log does not answer; the work waits and is repeated. No event is lost.",
    "Check that Postgres runs and that TOPOLOG_DATABASE_URL names it.",
)
FOLD_DIFFERS = event(
    "fold.differs",
    "Two folds of the same events charge pods differently: of one release (liveness fails) or of "
    "two (readiness waits).",
    "With two releases finish the rollout, or roll back. With one restart the service that the "
    "line names, and report the line with `topolog replay verify --json`.",
)
SNAPSHOT_UNUSABLE = event(
    "snapshot.unusable",
    "A snapshot cannot be read, or this release folds to another state; the log is replayed.",
    "None: the start takes longer once. A differing state that the CHANGELOG does not announce "
    "is a defect.",
)
LEASE_GAINED = event("lease.gained", "This process now has the lease of a role.")
LEASE_ENDED = event(
    "lease.lost",
    "The lease of a role was lost or renewed too late; its work was stopped.",
    "None: another instance leads. If it repeats, check Postgres and the CPU of the service.",
)
MEMBERS_CHANGED = event(
    "members.changed", "A member of a shared role joined or ended; the others take over its work."
)
RETRYING = event(
    "retry.scheduled",
    "A call (mostly to Postgres) failed and is repeated after a pause.",
    "If it repeats, check the server that the problem names.",
)
BUS_UP = event("bus.connected", "The connection to the bus is up.")
BUS_DOWN = event(
    "bus.disconnected",
    "The connection to NATS was lost; it is tried again without limit.",
    "Check that NATS runs and that TOPOLOG_NATS_URL names it.",
)
BUS_TROUBLE = event(
    "bus.trouble",
    "NATS reports an error; the call is repeated.",
    "If it stays, check what the line names: rights of the login, JetStream limits, or the "
    "address.",
)
BUS_STREAM_RECREATED = event(
    "bus.stream_made_anew",
    "A stream accepted no more messages, as after a full disk, and was created again.",
    "Give NATS more disk; `topolog doctor` shows its limits. The log has all events.",
)
RELAY_OVERTAKEN = event(
    "relay.overtaken",
    "Another relay moved the position, so this relay stopped.",
    "None: the other relay works.",
)

# The scheduler.
DECIDE_LATENCY = seconds("topolog_decide_latency", "Duration of one scheduling batch, without I/O.")
DECIDE_CPU = counter(
    "topolog_decide_cpu_seconds", "CPU time of scheduling; the latency also has other processes'."
)
DECIDE_BATCH = sizes("topolog_decide_batch_proposals", "Proposals in one scheduling batch.")
DECIDE_CONFLICTS = counter(
    "topolog_decide_conflicts",
    "Proposals that lost a race or were sent twice; their pods are scheduled again.",
)
NO_KERNEL = event(
    "kernel.missing",
    "The scheduler runs without its compiled kernel: it decides the same, and more slowly.",
    "Run `make install` on a machine with Python's headers, or use the image.",
)
OVER_BUDGET = counter(
    "topolog_verdicts_over_budget",
    "Filter results that reached the last limit of steps, so the node is rejected.",
)
RESERVED = counter("topolog_reservations", "Pods for which a reservation was appended.")
REJECTED = counter(
    "topolog_reserved_pods_rejected",
    "Reserved pods that their kubelet rejected, by the kubelet's reason; other is not about zones.",
    "reason",
)
QUEUE_READY = gauge("topolog_queue_ready_pods", "Pods in the active queue.")
ZONE_WAITS = gauge(
    "topolog_pods_waiting_for_zone",
    "Pods that wait for a zone, not a node; an empty node of `node_type` would take each.",
    "resource",
    "request",
    "node_type",
)
UNSCHEDULABLE = gauge(
    "topolog_pods_unschedulable",
    "Pods that no node takes now, by what they wait for: node, or zone (some node has room).",
    "namespace",
    "waits_for",
)
PLACES = gauge(
    "topolog_places",
    "Room for more of a frequent request: in `zones`, and `at_best`, if each node were one zone.",
    "request",
    "bound",
)
QUEUE_WAITING = gauge("topolog_queue_waiting_pods", "Unschedulable pods that wait for a change.")
NODES_DIRTY = gauge(
    "topolog_nodes_dirty",
    "Dirty nodes: their reports are compared with the expected placements until one agrees.",
)
COMPARISONS = counter(
    "topolog_fingerprint_comparisons",
    "Comparisons of reports of dirty nodes by result: fingerprint, proof, empty, mismatch.",
    "result",
)
EXCLUSIONS = counter("topolog_set_aside", "Exclusions of a node for a class, by cause.", "cause")
READMITTED = counter("topolog_readmitted", "Nodes and pods tried again, by cause.", "cause")
ZONE_FILL = gauge("topolog_zone_fill", "Used or charged share of all zones.", "resource")
NODES_EXCLUDED = gauge("topolog_nodes_set_aside", "Nodes that are excluded for some pod class now.")
NODES_HELD = gauge("topolog_nodes_held", "Nodes that are held for an overdue pod now.")
GANGS_WAITING = gauge(
    "topolog_gangs_waiting", "Gangs that have no node for some of their minimum of pods now."
)
GANGS_PLACED = counter("topolog_gangs_placed", "Commits that reserved the missing pods of a gang.")
GANGS_ROLLED_BACK = counter(
    "topolog_gangs_rolled_back",
    "Gangs whose pods were evicted because too few of them were bound for too long.",
)
GANG_WAIT = seconds(
    "topolog_gang_wait", "Time from when a gang's first pod was observed to the gang's reservation."
)
PODS_BARRED = gauge(
    "topolog_pods_barred", "Pods that the API server forbids to bind; see the binder's log."
)
OBSERVED = counter("topolog_observed_facts", "Events about the cluster that the observer appended.")
KUBE_TROUBLE = counter("topolog_kube_trouble", "Failed lists and watches of the Kubernetes API.")
MASS_ABSENCES = counter(
    "topolog_mass_absences", "Lists that lacked many objects: a second list confirms it.", "kind"
)
MISSED_CHANGES = counter(
    "topolog_untold",
    "Changes that only a check list showed: the list and the watch before had missed them.",
    "kind",
)
CELL_PODS_PASSED = counter("topolog_cell_pods_passed", "Pods that went to the next cell.")
CELL_PATCHES_REFUSED = counter(
    "topolog_cell_patches_refused",
    "Refused patches of owners and hops.",
    "kind",
)

SPAN_OBSERVE = span("cluster.observe", "A change at the Kubernetes API that becomes an event.")
SPAN_DECIDE = span("pod.decide", "The scheduling cycle of one pod, from the queue to the proposal.")

HOLD_BEGUN = event("hold.begun", "A node takes no other pod until an overdue pod is placed.")
HOLD_ENDED = event("hold.ended", "A node that was held for an overdue pod takes other pods again.")
GANG_PLACED = event("gang.placed", "One commit has reserved nodes for a gang's missing pods.")
GANG_WITHDRAWN = event(
    "gang.withdrawn",
    "A gang lost a pod before it was bound as a whole; its reservations are withdrawn.",
    "None: the gang is placed again when it fits. `topolog replay explain POD` shows the lost pod.",
)
GANG_ROLLED_BACK = event(
    "gang.rolled_back",
    "A gang had fewer bound pods than its minimum for too long; they are evicted.",
    "Ask `topolog replay explain POD` why the others waited. TOPOLOG_GANG_TIMEOUT_S sets the time.",
)
POD_RESERVED = event("pod.reserved", "A node was chosen for a pod; the log has the reservation.")
KUBE_RELIST = event(
    "kube.relist",
    "A watch cannot continue from its version; all objects of the kind are listed again.",
    "If it repeats, look for a proxy that ends watches, or a small watch cache.",
)
KUBE_CERTIFICATE = event(
    "kube.certificate",
    "A new certificate for the Kubernetes API cannot be used, and the old one stays.",
    "Correct the Kubernetes certificate files that the line names.",
)
KUBE_NOT_READY = event(
    "kube.not_ready",
    "The Kubernetes API does not answer, is busy, or denies a right.",
    "Follow the line: correct TOPOLOG_KUBECONFIG, apply k8s/base/rbac.yaml, or check the load of "
    "the API server.",
)
CHANGES_MISSED = event(
    "kube.untold",
    "A check list shows changes that list and watch had missed; they are appended now.",
    "If it repeats, look for a proxy that drops watch events.",
)
KUBE_UNLISTED = event(
    "kube.unlisted",
    "A new timeline begins: no pod is scheduled, bound or evicted before the cluster was listed.",
    "None if it lasts seconds. Otherwise `/healthz` of the observing scheduler shows why.",
)
CELL_NODE_TAKEN = event("cell.node_taken", "This cell took a node that it wants.")
CELL_NODE_LEFT = event("cell.node_left", "A node that left this log was given up.")
CELL_KEPT = event(
    "cell.kept",
    "A patch of a node's owner or a pod's hops was refused; it is repeated.",
    "None if the object has changed meanwhile. Otherwise grant patch on nodes and pods/status.",
)
CELL_POD_PASSED = event(
    "cell.pod_passed", "This cell could not place a pod, which is the next cell's now."
)
KUBE_MASS_ABSENCE = event(
    "kube.mass_absence",
    "A list lacks many objects that the log holds; none ends before a second list agrees.",
    "None after a bulk deletion. Otherwise look for a proxy that cuts lists.",
)
KUBE_MASS_ABSENCE_JUDGED = event(
    "kube.mass_absence_judged",
    "The second list was compared; the line counts the objects that have ended.",
    "`topolog replay log --type PodEnded` lists the pods.",
)
KUBE_SET_BACK = event(
    "kube.set_back",
    "A list is older than the log, or shows bound pods as unbound; a second list must agree.",
    "None after an etcd restore. Otherwise find the API server that answers with an old state.",
)
LIST_LACKED = event(
    "kube.list_lacked",
    "A list lacked objects that a GET still shows; they keep their charge.",
    "If it repeats, find the API server that answers incompletely.",
)
KUBE_UNAVAILABLE = event(
    "kube.unavailable",
    "A list or watch of the Kubernetes API failed and is repeated.",
    "Check the kubeconfig, the API server, and the rights of k8s/base/rbac.yaml.",
)
KUBELET_NOT_RECORDED = event(
    "kubelet.not_recorded", "No decisions of a node's kubelet version were recorded; `rules` hold."
)
FOLD_BEHIND = event(
    "fold.behind",
    "The fold has not reached the events that this process appended; it appends no more.",
    "If it repeats, check Postgres.",
)
UNWISE_ARGUMENT = event(
    "plugin.unwise_argument",
    "An argument of the upstream plugin is valid but has a better value.",
    "Set it to the value that the line recommends.",
)
SHADOW_CASES = counter(
    "topolog_shadow_cases",
    "Pods of other schedulers in shadow mode: agreed, prevented (a rejection avoided), missed, "
    "stricter (ran although Topolog rejects it).",
    "outcome",
)
SHADOW_DIFFERS = event(
    "shadow.differs", "Topolog's outcome for a pod differs from its scheduler's or its kubelet's."
)
EXTENDER_LATENCY = seconds(
    "topolog_extender_latency", "Duration of an answer to kube-scheduler, by verb.", "verb"
)
EXTENDER_REQUESTS = counter(
    "topolog_extender_requests",
    "Requests of kube-scheduler by verb and HTTP status; only 200 is an answer.",
    "verb",
    "status",
)
EXTENDER_SERVES = event(
    "extender.serves", "The extender listens for kube-scheduler, on this address."
)
EXTENDER_STRANGER = event(
    "extender.stranger",
    "A client was rejected because the name in its certificate is not allowed.",
    "If the client may call the extender, add its name to TOPOLOG_EXTENDER_CLIENTS.",
)
EXTENDER_FAILED = event(
    "extender.failed",
    "A request of kube-scheduler failed inside the extender; kube-scheduler repeats it.",
    "If it repeats, report the line.",
)
EXTENDER_CERTIFICATE = event(
    "extender.certificate",
    "The extender cannot use its new certificate, key or authority, and keeps the old ones.",
    "Correct the files that the extender's configuration names.",
)
NODE_EXCLUDED = event(
    "node.set_aside",
    "A node is excluded for a pod class: its kubelet rejected a pod, a policy denied a binding, "
    "or races were lost.",
    "Fix the cause. The exclusion ends by itself, or with `topolog node readmit NODE`.",
)
POD_REJECTED = event(
    "pod.rejected",
    "A kubelet rejected a reserved pod, for the reason in the line.",
    "None for a single pod. If it repeats on a node, compare its kubelet with the report "
    "(`topolog doctor`).",
)
UNDECIDABLE = event(
    "pod.undecidable",
    "The scheduler failed on a pod, which waits; the others continue.",
    "Report the line. `topolog replay why-not POD --node NODE` shows the state.",
)

# The binder.
BIND_CALLS = counter("topolog_bind_calls", "Binding calls by outcome.", "outcome")
BIND_REFUSALS = counter(
    "topolog_bind_refusals",
    "Bindings that the API server refused for good, by cause; forbidden means a missing right.",
    "cause",
)
BIND_LATENCY = seconds("topolog_bind_latency", "Duration of one binding call.")
QUEUED_TO_BOUND = seconds(
    "topolog_queued_to_bound", "From the first event of a pod to its binding."
)
BINDINGS_OPEN = gauge("topolog_bindings_open", "Bindings with an intent and without an outcome.")
ANNOUNCED = counter(
    "topolog_announcements",
    "Conditions and Kubernetes Events written to the API server, by result.",
    "result",
)
ZONE_REQUIREMENTS_MISSED = counter(
    "topolog_zone_requirements_missed", "Pods in several zones that were required to be in one."
)
PLACEMENT_DRIFTS = counter(
    "topolog_placement_drifts",
    "Pods in other zones than were predicted with certainty, or on other CPUs than reserved.",
)
EVICTIONS = counter("topolog_evictions", "Evictions for nominated pods, by outcome.", "outcome")

SPAN_BIND = span("pod.bind", "One binding call to the Kubernetes API.")

POD_BOUND = event("pod.bound", "A pod was bound, and the outcome is in the log.")
BIND_REFUSED = event(
    "pod.bind_refused",
    "The API server refused a binding for good; the charge is freed.",
    "Follow the line: grant create on pods/binding, or change the admission policy or the pod. "
    "None if the pod was deleted.",
)
BIND_UNCERTAIN = event(
    "pod.bind_uncertain",
    "The answer to a binding was lost or indefinite; the same binding is sent again.",
    "If it stays, check the API server.",
)
EVICTED = event("pod.evicted", "A pod was evicted for a nominated pod of higher priority.")
EVICT_REFUSED = event(
    "pod.evict_refused",
    "An eviction was given up, mostly because of a PodDisruptionBudget; the nomination ends.",
    "Check the budget that the line names, or the right on pods/eviction.",
)

# The topology-store.
REPORTS = counter("topolog_reports", "Reports by result.", "verdict")
NODES_KNOWN = gauge("topolog_nodes_known", "Nodes that have reported.")
NODES_SILENT = gauge(
    "topolog_nodes_silent", "Nodes of the cluster without a report for over report_max_age_s."
)
NODES_LOCKED_OUT = gauge(
    "topolog_nodes_locked_out", "Silent nodes whose reports are refused; see topolog node release."
)
MIRRORED = counter(
    "topolog_topology_writes",
    "NodeResourceTopology objects written or deleted, by result.",
    "result",
)
TOPOLOGY_OBJECTS = gauge("topolog_topology_objects", "NodeResourceTopologies by writer.", "writer")

SPAN_REPORT = span("report.judge", "A report is checked and, if it is new, appended.")

NODE_LOCKED_OUT = event(
    "node.locked_out",
    "A silent node sends only reports that are refused; it takes no aligned pod until it is "
    "released.",
    "Look at the machine (a cloned boot id?), then run `topolog node release NODE`.",
)
NODE_RELEASED = event("node.released", "An operator released a node: its next report counts.")
REPORT_REFUSED = event(
    "report.refused",
    "A report was refused; the line names node, field and problem.",
    "Correct or upgrade the node's exporter.",
)
TOPOLOGY_VERSION = event(
    "topology.version",
    "The API version of NodeResourceTopology objects that is read and written from now on.",
)
TOPOLOGY_NOT_WRITTEN = event(
    "topology.not_written",
    "A NodeResourceTopology object was not written or deleted; it is tried again.",
    "Check the topology-store's rights on noderesourcetopologies (k8s/base/rbac.yaml).",
)
TOPOLOGY_OFF = event(
    "topology.off",
    "NodeResourceTopology objects are neither read nor written: no API server is configured.",
    "Set TOPOLOG_KUBECONFIG, or TOPOLOG_MIRROR=false and TOPOLOG_REPORTS=bus.",
)
TAINT_REMOVED = event(
    "node.taint_taken", "A node has reported for the first time, and its startup taint was removed."
)
TAINT_NOT_REMOVED = event(
    "node.taint_left",
    "A node's startup taint could not be removed; it is tried again.",
    "Grant the topology-store the right patch on nodes (k8s/base/rbac.yaml).",
)
RESERVATION_NOT_WRITTEN = event(
    "reservation.not_written",
    "The status of a Reservation object was not written; it is tried again.",
    "Add k8s/components/reservations.",
)
NODE_SILENT = event(
    "node.silent",
    "A node has not reported for longer than report_max_age_s.",
    "Check that its exporter runs and reaches NATS. Running pods keep their charges.",
)
SPAN_REPORT = span("node.report", "A kubelet is scanned and its report made.")
