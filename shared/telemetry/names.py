"""Every metric, span and log event of Topolog, declared once with a sentence that says what it tells an operator.

A new name is one line here; `docs/` and the tests read the registries in `shared.telemetry.declare`.
"""

from __future__ import annotations

from shared.telemetry.declare import counter, event, gauge, seconds, sizes, span

# The event log.
APPEND_LATENCY = seconds("topolog_append_latency", "How long one append statement took, the wait for the counter row included.")
APPEND_BATCH_COMMITS = sizes("topolog_append_batch_commits", "How many commits one append statement carried.")
APPEND_OUTCOMES = counter("topolog_append_outcomes", "Commits by how their append ended: conflicts are races lost.", "outcome")
APPEND_RETRIES = counter("topolog_append_retries", "Append statements that were sent again because the answer was lost.")

# Consumers of the log.
CONSUMER_POSITION = gauge("topolog_consumer_position", "The position up to which a consumer has folded the log.", "consumer")
CONSUMER_LAG_FACTS = gauge("topolog_consumer_lag_facts", "How many facts a consumer stands behind the head.", "consumer")
CONSUMER_LAG_SECONDS = gauge(
    "topolog_consumer_lag", "Age of the newest fact that a consumer folded last, 0 at the head.", "consumer", unit="s"
)
CONSUMER_FACTS = counter("topolog_consumer_facts", "Facts handed to a consumer.", "consumer")
CONSUMER_RESETS = counter("topolog_consumer_resets", "Times a consumer discarded its state and began again.", "consumer", "cause")
CONSUMER_STOPPED = gauge("topolog_consumer_stopped", "1 when a consumer stopped at a fact that it cannot handle.", "consumer")
HANDLER_LATENCY = seconds(
    "topolog_consumer_handler_latency", "How long a consumer's handler took for a page of facts.", "consumer"
)
SNAPSHOTS = counter("topolog_snapshots", "Snapshots by what happened: saved, loaded, absent, unusable.", "projection", "result")

# Relay and bus.
RELAY_POSITION = gauge("topolog_relay_position", "The position up to which the log was relayed to the bus.")
RELAYED = counter("topolog_relayed_facts", "Facts that the relay published.")
BUS_CONNECTED = gauge("topolog_bus_connected", "1 while the connection to the bus is up.")
BUS_PUBLISHED = counter("topolog_bus_published", "Messages that the bus acknowledged.", "stream")
BUS_RETRIES = counter("topolog_bus_publish_retries", "Publications that were sent again.", "stream")
BUS_RESUBSCRIBED = counter("topolog_bus_resubscribed", "Subscriptions made anew, by cause.", "stream", "cause")

# Process.
LEADER = gauge("topolog_leader", "1 while this process holds the role's lease.", "role")
LEASE_LOST = counter("topolog_leases_lost", "Leases lost while their work ran.", "role")
TASK_RUNNING = gauge("topolog_task_running", "1 while a task of the service runs.", "task")
LOOP_DELAY = seconds("topolog_event_loop_delay", "How late the event loop runs its timers: above 0.1 s it is blocked.")

SPAN_APPEND = span("log.append", "Commits on their way into the log, from the caller's side.")
SPAN_CONSUME = span("log.consume", "A page of facts handed to a handler.")

STARTED = event("service.started", "The service runs; shows its settings with secrets masked.")
STOPPING = event("service.stopping", "A signal or a failed task ends the service; draining begins.")
STOPPED = event("service.stopped", "The service has ended; shows the exit code.")
SETTINGS_INVALID = event("settings.invalid", "The service cannot start; every error of the settings is listed.")
TASK_FAILED = event("task.failed", "A task of the service ended by an error.")
DRAIN_EXCEEDED = event("service.drain_exceeded", "Tasks did not end within the grace and were abandoned.")
CONSUMER_RESET = event("consumer.reset", "The log is another one, or went back: the state was discarded and is folded anew.")
CONSUMER_LIVE = event("consumer.live", "A consumer has caught up with the log.")
CONSUMER_HALTED = event("consumer.halted", "A consumer stopped at a fact that it cannot handle; the others go on.")
LOG_UNAVAILABLE = event("log.unavailable", "The log does not answer; what needs it waits and tries again.")
SNAPSHOT_UNUSABLE = event("snapshot.unusable", "A snapshot could not be read and was ignored; the log is replayed instead.")
LEASE_GAINED = event("lease.gained", "This process now holds a role.")
LEASE_GONE = event("lease.lost", "Another holder has the role, or it could not be renewed in time; its work was stopped.")
BUS_UP = event("bus.connected", "The connection to the bus is up.")
BUS_DOWN = event("bus.disconnected", "The connection to the bus was lost; it is tried again for ever.")
BUS_TROUBLE = event("bus.trouble", "The bus client reported an error.")
RELAY_OVERTAKEN = event("relay.overtaken", "Another relay moved the position: this one stopped.")
