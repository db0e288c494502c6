"""Metrics, spans and log events of the exporter (see `names`)."""

from __future__ import annotations

from shared.telemetry.declare import counter, event, gauge, seconds

SCANS = counter("topolog_exporter_scans", "Scans of a kubelet by result.", "result")
SCAN_LATENCY = seconds(
    "topolog_exporter_scan_latency", "Duration of one scan of a kubelet, including its report."
)
RTE_API_FAILURES = counter(
    "rte_podresource_api_call_failures",
    "Failed podresources calls, under RTE's name.",
    "node",
    "function_name",
)
RTE_OPERATION_DELAY = gauge(
    "rte_operation_delay_milliseconds",
    "Duration of the last scan or write of an object, under RTE's name.",
    "node",
    "operation_name",
    "trigger",
)
RTE_WAKEUP_DELAY = gauge(
    "rte_wakeup_delay_milliseconds",
    "Delay of the last scan after its time or after the change that caused it, under RTE's name.",
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
    "nfd_topology_updater_scan_errors", "Failed scans, under the name of NFD's topology-updater."
)
NFD_BUILD_INFO = gauge(
    "nfd_topology_updater_build_info",
    "Start time of the exporter of that version (Unix seconds), under the name of NFD's "
    "topology-updater.",
    "version",
)
EXPORTER_OBJECTS = counter(
    "topolog_exporter_objects",
    "NodeResourceTopology objects written by the node, by result.",
    "result",
)
EXPORTER_NODES_FAILING = gauge(
    "topolog_exporter_nodes_failing", "Nodes of this exporter that cannot be read now."
)


NODE_UNREADABLE = event(
    "node.unreadable",
    "A kubelet or its machine cannot be read; it is tried again, other nodes continue.",
    "Let the exporter read what the line names.",
)
OBJECTS_REFUSED = event(
    "topology.refused",
    "The API server refused the node's NodeResourceTopology object; it is tried again.",
    "Apply k8s/components/exporter-objects and k8s/components/noderesourcetopology.",
)
READINESS_REFUSED = event(
    "pod.readiness_refused",
    "The API server refused the conditions of the exporter's pod; they are tried again.",
    "Grant patch on pods/status in the exporter's namespace, or set --podreadiness=false.",
)
SLICES_REFUSED = event(
    "slices.refused",
    "ResourceSlices of the node were not read, so devices of claims have no zone.",
    "Grant list on resourceslices.resource.k8s.io, or start it without --dra-slices.",
)
WATCH_POLLS = event(
    "watch.polls",
    "Without inotify the kubelet's files are polled, so changes are noticed later.",
    "Raise fs.inotify.max_user_instances on the node.",
)
NODE_READABLE = event("node.readable", "A node that could not be read can be read again.")
REPORT_INCOMPLETE = event(
    "report.incomplete",
    "A report was cut to its size limit, or the policy of the kubelet is unknown.",
    "Mount the sources, or spread the pods, that the line names.",
)
