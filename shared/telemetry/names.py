"""Every metric, span and log event of Topolog, declared once with a sentence that says what it
tells an operator.

A new name is one line here; `docs/` and the tests read the registries in
`shared.telemetry.declare`.
"""

from __future__ import annotations

from shared.telemetry.declare import counter, event, gauge, seconds, sizes, span

# The event log.
APPEND_LATENCY = seconds(
    "topolog_append_latency",
    "How long one append statement took, the wait for the counter row included.",
)
APPEND_BATCH_COMMITS = sizes(
    "topolog_append_batch_commits", "How many commits one append statement carried."
)
APPEND_OUTCOMES = counter(
    "topolog_append_outcomes",
    "Commits by how their append ended: conflicts are races lost.",
    "outcome",
)
APPEND_RETRIES = counter(
    "topolog_append_retries", "Append statements that were sent again because the answer was lost."
)

# Consumers of the log.
CONSUMER_POSITION = gauge(
    "topolog_consumer_position",
    "The position up to which a consumer has folded the log.",
    "consumer",
)
CONSUMER_LAG_FACTS = gauge(
    "topolog_consumer_lag_facts", "How many facts a consumer stands behind the head.", "consumer"
)
CONSUMER_LAG_SECONDS = gauge(
    "topolog_consumer_lag",
    "Age of the newest fact that a consumer folded last, 0 at the head.",
    "consumer",
    unit="s",
)
CONSUMER_FACTS = counter("topolog_consumer_facts", "Facts handed to a consumer.", "consumer")
CONSUMER_RESETS = counter(
    "topolog_consumer_resets",
    "Times a consumer discarded its state and began again.",
    "consumer",
    "cause",
)
CONSUMER_STOPPED = gauge(
    "topolog_consumer_stopped",
    "1 when a consumer stopped at a fact that it cannot handle.",
    "consumer",
)
STREAMS_ASIDE = gauge(
    "topolog_streams_set_aside",
    "Streams not followed because of a fact that cannot be folded.",
    "projection",
)
HANDLER_LATENCY = seconds(
    "topolog_consumer_handler_latency",
    "How long a consumer's handler took for a page of facts.",
    "consumer",
)
SNAPSHOTS = counter(
    "topolog_snapshots",
    "Snapshots by what happened: saved, loaded, absent, unusable.",
    "projection",
    "result",
)
MARKS_COMPARED = counter(
    "topolog_marks_compared",
    "Comparisons of what folds promise: with own or other code, same or differs.",
    "projection",
    "code",
    "result",
)

# Relay and bus.
RELAY_POSITION = gauge(
    "topolog_relay_position", "The position up to which the log was relayed to the bus."
)
RELAYED = counter("topolog_relayed_facts", "Facts that the relay published.")
BUS_CONNECTED = gauge("topolog_bus_connected", "1 while the connection to the bus is up.")
BUS_PUBLISHED = counter("topolog_bus_published", "Messages that the bus acknowledged.", "stream")
BUS_RETRIES = counter("topolog_bus_publish_retries", "Publications that were sent again.", "stream")
BUS_RESUBSCRIBED = counter(
    "topolog_bus_resubscribed", "Subscriptions made anew, by cause.", "stream", "cause"
)
BUS_STREAMS_MADE_ANEW = counter(
    "topolog_bus_streams_made_anew",
    "Streams that took nothing any more and were made anew.",
    "stream",
)

# Process.
LEADER = gauge("topolog_leader", "1 while this process holds the role's lease.", "role")
MEMBERS = gauge(
    "topolog_members",
    "Live members of a role that several processes share, as this one sees them.",
    "role",
)
LEASE_LOST = counter("topolog_leases_lost", "Leases lost while their work ran.", "role")
LOG_LINES_LOST = counter(
    "topolog_log_lines_lost",
    "Log lines that standard error did not take: a full disk, nobody who reads.",
)
KUBE_READY = gauge(
    "topolog_kube_ready", "1 while the Kubernetes API answers and grants what this service needs."
)
TASK_RUNNING = gauge(
    "topolog_task_running", "1 while a task runs that lasts as long as its service.", "task"
)
LOOP_DELAY = seconds(
    "topolog_event_loop_delay",
    "How late the event loop runs its timers: above 0.1 s it is blocked.",
)

SPAN_APPEND = span("log.append", "Commits on their way into the log, from the caller's side.")

STARTED = event("service.started", "The service runs; shows its settings with secrets masked.")
STOPPING = event("service.stopping", "A signal or a failed task ends the service; draining begins.")
STOPPED = event("service.stopped", "The service has ended; shows the exit code.")
TASK_FAILED = event("task.failed", "A task of the service ended by an error.")
DRAIN_EXCEEDED = event(
    "service.drain_exceeded", "Tasks did not end within the grace and were abandoned."
)
HISTORY_LOST = event(
    "log.history_lost",
    "The log lacks what was read of it: it was set back, and goes on on a new timeline.",
)
CONSUMER_RESET = event(
    "consumer.reset",
    "The log is another one, or went back: the state was discarded and is folded anew.",
)
CONSUMER_LIVE = event("consumer.live", "A consumer has caught up with the log.")
CONSUMER_HALTED = event(
    "consumer.halted", "A consumer stopped at a fact that it cannot handle; the others go on."
)
HTTP_EXPOSED = event(
    "http.exposed", "Metrics and state are open to everybody who reaches the port; set a token."
)
HTTP_CERTIFICATE = event(
    "http.certificate",
    "The HTTP port's new certificate or authority cannot be used; the old one goes on.",
)
LOGIN_TOO_STRONG = event(
    "log.login_too_strong",
    "The service logs in as somebody who may change facts; give it its own login.",
)
LOG_BYTES = gauge(
    "topolog_log_bytes", "What the log takes where it is kept: the size of its database."
)
LOG_LIMIT_BYTES = gauge(
    "topolog_log_limit_bytes",
    "The size that the log is meant to stay below (TOPOLOG_LOG_LIMIT_GIB).",
)
LOG_NEAR_LIMIT = event(
    "log.near_limit", "The log takes more than four fifths of what it is meant to take."
)
STREAM_SET_ASIDE = event(
    "stream.set_aside",
    "A fact cannot be read or folded: its stream is not followed until it is skipped.",
)
LOG_UNAVAILABLE = event(
    "log.unavailable", "The log does not answer; what needs it waits and tries again."
)
FOLD_DIFFERS = event(
    "fold.differs",
    "Two folds of the same facts promise pods something else: of one release (red), or of two (readiness waits).",
)
SNAPSHOT_UNUSABLE = event(
    "snapshot.unusable",
    "A snapshot could not be read and was ignored; the log is replayed instead.",
)
LEASE_GAINED = event("lease.gained", "This process now holds a role.")
LEASE_GONE = event(
    "lease.lost",
    "Another holder has the role, or it could not be renewed in time; its work was stopped.",
)
MEMBERS_CHANGED = event(
    "members.changed",
    "A member of a shared role came, or is gone; what it had to do is the others' now.",
)
RETRYING = event(
    "retry.scheduled",
    "Something outside (Postgres, mostly) did not answer; the same is tried again after a pause.",
)
BUS_UP = event("bus.connected", "The connection to the bus is up.")
BUS_DOWN = event(
    "bus.disconnected", "The connection to the bus was lost; it is tried again for ever."
)
BUS_TROUBLE = event("bus.trouble", "The bus client reported an error.")
BUS_STREAM_MADE_ANEW = event(
    "bus.stream_made_anew",
    "A stream took nothing any more, as after a full disk; it was made anew.",
)
RELAY_OVERTAKEN = event("relay.overtaken", "Another relay moved the position: this one stopped.")

# The scheduler.
DECIDE_LATENCY = seconds("topolog_decide_latency", "How long one deciding batch took, without I/O.")
DECIDE_CPU = counter(
    "topolog_decide_cpu_seconds",
    "CPU time of deciding; what the latency has beyond it, other processes took.",
)
DECIDE_BATCH = sizes(
    "topolog_decide_batch_proposals", "How many proposals one deciding batch made."
)
DECIDE_CONFLICTS = counter(
    "topolog_decide_conflicts",
    "Proposals that lost a race, or were sent twice, and are decided again.",
)
OVER_BUDGET = counter(
    "topolog_verdicts_over_budget",
    "Judgements of a node that met their last budget of steps: the pod is refused there.",
)
RESERVED = counter("topolog_reservations", "Pods for which a reservation was appended.")
REJECTED = counter(
    "topolog_reserved_pods_rejected",
    "Pods that were reserved here and that their kubelet rejected all the same, by its reason; other says nothing of zones.",
    "reason",
)
QUEUE_READY = gauge("topolog_queue_ready_pods", "Pods that wait to be decided.")
QUEUE_WAITING = gauge(
    "topolog_queue_waiting_pods", "Pods that fit nowhere now and wait for a change."
)
NODES_DIRTY = gauge(
    "topolog_nodes_dirty",
    "Nodes marked dirty: their reports are compared until one agrees with what is expected.",
)
COMPARISONS = counter(
    "topolog_fingerprint_comparisons",
    "Reports of dirty nodes by what the comparison said: fingerprint, proof, empty, mismatch.",
    "result",
)
SET_ASIDE = counter(
    "topolog_set_aside", "Times a node was set aside for a shape of pods, by cause.", "cause"
)
READMITTED = counter(
    "topolog_readmitted", "Nodes and pods that are tried again after they were set aside.", "cause"
)
NODES_SET_ASIDE = gauge(
    "topolog_nodes_set_aside", "Nodes that are set aside for some shape of pods now."
)
PODS_BARRED = gauge(
    "topolog_pods_barred",
    "Pods whose binding the API server forbids wherever it goes; see the binder's log.",
)
OBSERVED = counter("topolog_observed_facts", "Facts about the cluster that the observer appended.")
KUBE_TROUBLE = counter(
    "topolog_kube_trouble", "Lists and watches of the Kubernetes API that failed."
)
MASS_ABSENCES = counter(
    "topolog_mass_absences", "Lists that lacked so much that a second one had to agree.", "kind"
)
UNTOLD = counter(
    "topolog_untold",
    "Facts that a list beside the watch showed, and neither list nor watch had told.",
    "kind",
)

SPAN_OBSERVE = span("cluster.observe", "The Kubernetes API showed something that is a fact.")
SPAN_DECIDE = span("pod.decide", "A decision about one pod, from the queue to the proposal.")

POD_RESERVED = event(
    "pod.reserved", "A node was chosen for a pod, and the reservation stands in the log."
)
RELIST = event(
    "kube.relist", "The watch cannot go on from where it was: everything is listed again."
)
KUBE_CERTIFICATE = event(
    "kube.certificate",
    "A new certificate for the Kubernetes API cannot be used; the old one goes on.",
)
KUBE_NOT_READY = event(
    "kube.not_ready",
    "The Kubernetes API does not answer, or rights are missing: not ready until it does.",
)
UNTOLD_FOUND = event(
    "kube.untold", "A list beside the watch shows what neither list nor watch told; it is told now."
)
UNLISTED = event(
    "kube.unlisted",
    "The log begins a new timeline: nothing is decided, bound or evicted before a list of the cluster.",
)
MASS_ABSENCE = event(
    "kube.mass_absence",
    "A list lacks much of what the log holds; nothing ends before a second list agrees.",
)
LIST_LACKED = event(
    "kube.list_lacked",
    "A list lacked objects that a GET still shows; they keep their charge.",
)
MASS_ABSENCE_JUDGED = event(
    "kube.mass_absence_judged",
    "The second list was compared: shows how much of what was doubted has ended.",
)
SET_BACK = event(
    "kube.set_back",
    "A list is older than the log, or shows bound pods waiting (was etcd restored?); believed once a second agrees.",
)
KUBE_UNAVAILABLE = event(
    "kube.unavailable", "The Kubernetes API does not answer; it is tried again."
)
FOLD_BEHIND = event(
    "fold.behind",
    "The fold has not reached what this process appended; nothing new is told until it has.",
)
UNWISE_ARGUMENT = event(
    "plugin.unwise_argument",
    "An argument of the upstream plugin is legal but unwise; says what is better.",
)
SHADOW_CASES = counter(
    "topolog_shadow_cases",
    "Pods of other schedulers in shadow mode: agreed, prevented (a rejection avoided), missed, stricter (ran, though refused).",
    "outcome",
)
SHADOW_DIFFERS = event(
    "shadow.differs",
    "Topolog would have said something else to a pod than its scheduler or its kubelet did.",
)
EXTENDER_LATENCY = seconds(
    "topolog_extender_latency", "How long an answer to kube-scheduler took, by verb.", "verb"
)
EXTENDER_REQUESTS = counter(
    "topolog_extender_requests",
    "Requests of kube-schedulers by verb and HTTP status; only 200 is an answer.",
    "verb",
    "status",
)
EXTENDER_SERVES = event(
    "extender.serves", "The extender listens for kube-schedulers; shows the address."
)
EXTENDER_STRANGER = event(
    "extender.stranger", "A client whose certificate has another name was turned away."
)
EXTENDER_FAILED = event(
    "extender.failed", "A request of kube-scheduler failed inside the extender; it is asked again."
)
EXTENDER_CERTIFICATE = event(
    "extender.certificate",
    "The extender's new certificate, key or authority cannot be used; the old ones go on.",
)
NODE_SET_ASIDE = event(
    "node.set_aside",
    "A kubelet rejected, a policy denied, or races were lost: such pods are not sent to the node for now.",
)
POD_REJECTED = event(
    "pod.rejected",
    "A kubelet rejected a pod on the node that was reserved for it; says the kubelet's reason.",
)
UNDECIDABLE = event(
    "pod.undecidable",
    "Deciding a pod failed inside the scheduler; the pod waits, the others go on.",
)

# The binder.
BIND_CALLS = counter("topolog_bind_calls", "Binding calls by their outcome.", "outcome")
BIND_REFUSALS = counter(
    "topolog_bind_refusals",
    "Bindings that the API server refused for good, by cause: forbidden asks for a right.",
    "cause",
)
BIND_LATENCY = seconds("topolog_bind_latency", "How long one binding call took.")
BINDINGS_OPEN = gauge("topolog_bindings_open", "Bindings intended and not settled.")
ANNOUNCED = counter(
    "topolog_announcements", "Conditions and events written for people, by result.", "result"
)
EVICTIONS = counter("topolog_evictions", "Evictions for nominees by their outcome.", "outcome")

SPAN_BIND = span("pod.bind", "One binding call to the Kubernetes API.")

POD_BOUND = event("pod.bound", "A pod was bound; its outcome stands in the log.")
BIND_REFUSED = event("pod.bind_refused", "The API server said no for good; the charge is freed.")
BIND_UNCERTAIN = event(
    "pod.bind_uncertain", "The answer was lost or indefinite; the same binding is sent again."
)
EVICTED = event("pod.evicted", "A pod was evicted for a nominee of higher priority.")
EVICT_REFUSED = event(
    "pod.evict_refused",
    "An eviction was given up, most often for a PodDisruptionBudget; the nomination ends.",
)

# The topology-store.
REPORTS = counter("topolog_reports", "Reports by what became of them.", "verdict")
NODES_KNOWN = gauge("topolog_nodes_known", "Nodes that have reported.")
NODES_SILENT = gauge(
    "topolog_nodes_silent",
    "Nodes of the cluster that were silent for longer than report_max_age_s.",
)
NODES_LOCKED_OUT = gauge(
    "topolog_nodes_locked_out", "Silent nodes whose reports are refused; see topolog node release."
)
MIRRORED = counter(
    "topolog_topology_writes",
    "NodeResourceTopology objects written or deleted, by result.",
    "result",
)
TOPOLOGY_OBJECTS = gauge(
    "topolog_topology_objects",
    "NodeResourceTopology objects there are, by who writes them.",
    "writer",
)

SPAN_REPORT = span("report.judge", "A report was judged and, when it is news, appended.")

NODE_LOCKED_OUT = event(
    "node.locked_out",
    "A silent node's reports are refused: it takes no aligned pod until it is released.",
)
NODE_RELEASED = event("node.released", "An operator released a node: its next report counts.")
REPORT_REFUSED = event(
    "report.refused", "A report was refused; names the node, the field and the remedy."
)
TOPOLOGY_VERSION = event(
    "topology.version",
    "The API version of NodeResourceTopology objects that is read and written from now on.",
)
TOPOLOGY_NOT_WRITTEN = event(
    "topology.not_written",
    "A NodeResourceTopology object was not written or deleted; it is tried again.",
)
TOPOLOGY_OFF = event(
    "topology.off",
    "NodeResourceTopology objects are neither read nor written, because no API is configured.",
)
TAINT_TAKEN = event(
    "node.taint_taken", "A node has reported for the first time: its startup taint was taken away."
)
TAINT_LEFT = event(
    "node.taint_left", "A node's startup taint could not be taken away; it is tried again."
)
NODE_SILENT = event("node.silent", "A node has not reported for longer than report_max_age_s.")

# The exporter.
SCANS = counter("topolog_exporter_scans", "Readings of a kubelet by result.", "result")
SCAN_LATENCY = seconds(
    "topolog_exporter_scan_latency", "How long reading one kubelet and making its report took."
)
RTE_API_FAILURES = counter(
    "rte_podresource_api_call_failures",
    "Calls of podresources that failed, under RTE's name.",
    "node",
    "function_name",
)
RTE_OPERATION_DELAY = gauge(
    "rte_operation_delay_milliseconds",
    "How long the last scan or write of an object took, under RTE's name.",
    "node",
    "operation_name",
    "trigger",
)
RTE_WAKEUP_DELAY = gauge(
    "rte_wakeup_delay_milliseconds",
    "How late the last scan began after its time, or after the change that asked for it, under RTE's name.",
    "node",
    "trigger",
)
RTE_WRITES = counter(
    "rte_noderesourcetopology_writes",
    "Objects that were written, under RTE's name.",
    "node",
    "operation",
    "trigger",
)
NFD_SCAN_ERRORS = counter(
    "nfd_topology_updater_scan_errors",
    "Scans that failed, under the name of NFD's topology-updater.",
)
NFD_BUILD_INFO = gauge(
    "nfd_topology_updater_build_info",
    "When the exporter of that version started (seconds since 1970), under the name of NFD's topology-updater.",
    "version",
)
EXPORTER_OBJECTS = counter(
    "topolog_exporter_objects",
    "NodeResourceTopology objects that the node wrote, by result.",
    "result",
)
EXPORTER_NODES_FAILING = gauge(
    "topolog_exporter_nodes_failing", "Nodes of this exporter that cannot be read now."
)

SPAN_REPORT = span("node.report", "A kubelet is read and its report made.")

NODE_UNREADABLE = event(
    "node.unreadable",
    "A kubelet or its machine cannot be read; it is tried again, other nodes go on.",
)
OBJECTS_REFUSED = event(
    "topology.refused",
    "A NodeResourceTopology object of the node was not taken; it is tried again.",
)
READINESS_REFUSED = event(
    "pod.readiness_refused",
    "The conditions of the exporter's own pod were not taken; it is tried again.",
)
SLICES_REFUSED = event(
    "slices.refused",
    "ResourceSlices of the node were not read: devices of claims have no zone meanwhile.",
)
WATCH_POLLS = event(
    "watch.polls",
    "Without inotify the files of kubelets are looked at in turns: changes are noticed later.",
)
NODE_READABLE = event("node.readable", "A node that could not be read can be read again.")
