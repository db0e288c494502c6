"""Plays one cell in virtual time: a heap of the next steps of arrivals, scheduler, API, kubelets
and exporters.

Machines, tasks and every delay are the same for all rows. If a kubelet rejects a task's pod, its
controller creates another pod after `RETRY_S`, with a new uid.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable

import msgspec

from services.comparison.cells import Cell
from services.comparison.delays import Delays
from services.comparison.measures import Measures
from services.comparison.rows import Row
from services.comparison.truth import TrueNode
from services.comparison.workloads import PodTask, Workload, member_task, pod_of
from services.scheduler.snapshot.topology_policy import POLICY_LABEL
from services.simulator.cluster import GPU
from services.simulator.kubelet import Trial
from services.simulator.workload import Task
from shared.domain.pod import Pod
from shared.events import streams
from shared.events.catalog import Event
from shared.events.cluster_events import EndCause, NodeObserved, PodEnded, PodObserved, PodRunning
from shared.kubelet.versions import DEFAULT

# The kubelets here are the model itself.
MODEL = f"v{DEFAULT.version}.0"
RETRY_S = 5.0
# From new information to a decision, and between two decisions.
DECIDE_S = 0.02
# The exporter's pause after a change, and the least time between two of its scans (its defaults).
SETTLE_S, MIN_GAP_S = 0.05, 0.25

# The nodes' clocks at the start: statuses have whole seconds, and 0 is unknown.
EPOCH_S = 1_700_000_000


class Job(msgspec.Struct):
    """A task and its current pod. `started_s` and `finished_s` are the seconds in the pod's
    status.
    """

    task: Task
    arrived_s: float
    turn: int = 0
    member: bool = False
    attempts: int = 0
    pod: Pod | None = None
    node: str = ""
    decided_s: float = 0.0
    order: int = 0
    started_s: int = 0
    finished_s: int = 0


class Simulation:
    """Plays one cell. `measures` has its counts."""

    def __init__(
        self,
        cell: Cell,
        load: Workload,
        nodes: dict[str, TrueNode],
        row: Row,
        measures: Measures,
        delays: Delays | None = None,
    ) -> None:
        self.now_s = 0.0
        self.measures = measures
        self._cell, self._load, self._nodes, self._row = cell, load, nodes, row
        self._delays = Delays(cell.seed) if delays is None else delays
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._serial = self._decisions = 0
        self._jobs: dict[str, Job] = {}
        self._decide_at_s = float("inf")
        self._queues: dict[str, list[Job]] = {name: [] for name in nodes}
        self._scanned_s: dict[str, float] = {}
        self._due_scans: set[str] = set()

    # -- the clock
    # ----------------------------------------------------------------------------------------------

    def run(self, progress: Callable[[float], None] = lambda _: None) -> None:
        """Play from 0 to the horizon. `progress` gets the share that is done."""
        self._begin()
        step = self._cell.horizon_s / 50
        shown = 0.0
        while self._heap and self._heap[0][0] <= self._cell.horizon_s:
            self.now_s, _, event = heapq.heappop(self._heap)
            event()
            if self.now_s >= shown + step:
                shown = self.now_s
                progress(shown / self._cell.horizon_s)
        self.now_s = float(self._cell.horizon_s)

    def _after(self, delay_s: float, event: Callable[[], None]) -> None:
        self._serial += 1
        heapq.heappush(self._heap, (self.now_s + delay_s, self._serial, event))

    def _delay(self, kind: str, job: Job) -> float:
        return self._delays.draw(kind, f"{job.task.name}/{job.turn}/{job.attempts}")

    def _begin(self) -> None:
        self._publish_nodes()
        for task in self._load.running:
            self._start_running(Job(task, 0.0))
        interval = float(self._cell.interval_s)
        for node in self._nodes.values():
            self._row.reported(node.report(0.0), 0.0)
            phase = self._delays.draw("step", node.name) * 40 % 1 * interval
            self._after(phase, lambda node=node: self._scan(node))  # type: ignore[misc]
        for arrival in self._load.arrivals:
            job = Job(arrival.task, arrival.at_s)
            self._after(arrival.at_s, lambda job=job: self._create_pod(job))  # type: ignore[misc]
        for index, name in enumerate(self._load.members):
            job = Job(member_task(name, 0, self._cell.seed), index * 0.05, member=True)
            self._after(job.arrived_s, lambda job=job: self._create_pod(job))  # type: ignore[misc]
        self._after(0.5, self._sample)

    def _publish_nodes(self) -> None:
        for at_s, stream, event in self._load.news:
            if at_s <= 0:
                self._publish(stream, event)
            else:
                self._after(at_s, lambda stream=stream, event=event: self._publish(stream, event))  # type: ignore[misc]
        for node in self._nodes.values() if not self._load.news else ():
            offered = node.simulated.allocatable()
            policy = node.simulated.owned_policy
            seen = NodeObserved(
                node.name,
                f"uid-{node.name}",
                labels={POLICY_LABEL: policy} if policy else {},
                allocatable=offered,
                kubelet_version=MODEL,
            )
            self._publish(streams.node(node.name), seen)

    def _start_running(self, job: Job) -> None:
        """Put a task on the first node whose kubelet admits it, starting at its own node or at a
        hash of its name.
        """
        pod = job.pod = pod_of(job.task, f"{job.task.name}/0")
        names = list(self._nodes)
        start = int(self._delays.draw("step", job.task.name) * 1e9) % len(names)
        if isinstance(job.task, PodTask) and job.task.node in self._nodes:
            start = names.index(job.task.node)
        for name in (*names[start:], *names[:start]):
            node = self._nodes[name]
            bound = node.as_bound(pod)
            if bound is not None:
                node.assigned(bound)
                trial = node.begin(bound.uid)
                if node.conclude(bound, 0.0).verdict.admitted and trial.verdict.admitted:
                    job.pod, job.node = bound, name
                    self._jobs[pod.uid] = job
                    self._publish(
                        streams.pod(pod.uid), PodObserved(bound, node=name, phase="Running")
                    )
                    self._after(job.task.lifetime_s, lambda: self._end_pod(job))
                    return

    # -- scheduler
    # ----------------------------------------------------------------------------------------------

    def _publish(self, stream: str, event: Event) -> None:
        self._row.evolve(stream, event, self.now_s)
        self._ask(DECIDE_S)

    def _ask(self, delay_s: float) -> None:
        """Let the row decide after this delay, unless it decides earlier anyway."""
        at_s = self.now_s + delay_s
        if at_s < self._decide_at_s:
            self._decide_at_s = at_s
            self._after(delay_s, lambda: self._decide(at_s))

    def _decide(self, at_s: float) -> None:
        if at_s != self._decide_at_s:
            return
        self._decide_at_s = float("inf")
        for uid, node in self._row.decide(self.now_s):
            self._reserved(self._jobs[uid], node)
        due_s = self._row.next_s(self.now_s)
        if due_s is not None:
            self._ask(max(DECIDE_S, due_s - self.now_s))

    def _create_pod(self, job: Job) -> None:
        pod = job.pod = pod_of(job.task, f"{job.task.name}/{job.turn}/{job.attempts}", job.attempts)
        self._jobs[pod.uid] = job
        if isinstance(job.task, PodTask) and job.task.bound:
            self._bound_elsewhere(job, job.task.node)
            return
        gpus = sum(part.requests.get(GPU, 0) for part in pod.containers if part.kind == "app")
        if not job.turn:  # later turns of a set's member depend on the row
            self.measures.arrived(pod.uid, job.arrived_s, gpus)
        if isinstance(job.task, PodTask) and job.task.gives_up_s < self._cell.horizon_s:
            self._after(
                max(0.0, job.task.gives_up_s - self.now_s), lambda: self._delete_if_waiting(job)
            )
        self._after(
            self._delay("watch", job), lambda: self._publish(streams.pod(pod.uid), PodObserved(pod))
        )

    def _bound_elsewhere(self, job: Job, node: str) -> None:
        """Bind a pod whose node this row does not choose: a pod of another scheduler, of a
        DaemonSet, or a static pod.
        """
        assert job.pod is not None
        self._decisions += 1
        job.node, job.decided_s, job.order = node, self.now_s, self._decisions
        self._nodes[node].reserved(job.pod)
        self._publish(streams.pod(job.pod.uid), PodObserved(job.pod, node=node))
        self._after(self._delay("kubelet_watch", job), lambda: self._list_pod(job))

    def _delete_if_waiting(self, job: Job) -> None:
        """Delete the pod if it still waits."""
        assert job.pod is not None
        if job.pod.uid in self._jobs and not job.node:
            del self._jobs[job.pod.uid]
            self.measures.gave_up(job.pod.uid)
            self._publish(streams.pod(job.pod.uid), PodEnded(job.pod.uid, "deleted"))

    def _reserved(self, job: Job, node: str) -> None:
        assert job.pod is not None
        self._decisions += 1
        job.node, job.decided_s, job.order = node, self.now_s, self._decisions
        self.measures.zones.decided(job.pod, node, self.now_s)
        self._nodes[node].reserved(job.pod)
        annotations = {**job.pod.annotations, **self._row.intends(job.pod, node, self.now_s)}
        job.pod = msgspec.structs.replace(job.pod, annotations=annotations)
        self._after(self._delay("bind", job), lambda: self._bound(job))

    def _bound(self, job: Job) -> None:
        assert job.pod is not None
        self._row.bound(job.pod, job.node, self.now_s)
        self._ask(DECIDE_S)
        self._after(self._delay("kubelet_watch", job), lambda: self._list_pod(job))

    # -- kubelet
    # ----------------------------------------------------------------------------------------------

    def _list_pod(self, job: Job) -> None:
        assert job.pod is not None
        self._nodes[job.node].assigned(job.pod)
        self._queues[job.node].append(job)
        if len(self._queues[job.node]) == 1:
            self._after(self._delay("admission", job), lambda: self._admission_begins(job))

    def _admission_begins(self, job: Job) -> None:
        assert job.pod is not None
        trial = self._nodes[job.node].begin(job.pod.uid)
        self._show(job, trial, 0)

    def _show(self, job: Job, trial: Trial, step: int) -> None:
        if step < len(trial.steps):
            self._nodes[job.node].show(trial.steps[step])
            self._scan_after_change(job.node)
            self._after(
                self._delays.draw("step", f"{job.task.name}/{job.turn}/{step}"),
                lambda: self._show(job, trial, step + 1),
            )
        else:
            self._admission_ends(job)

    def _admission_ends(self, job: Job) -> None:
        assert job.pod is not None
        node, pod = self._nodes[job.node], job.pod
        trial = node.conclude(pod, self.now_s, job.order)
        self._note_change(job.node)
        queue = self._queues[job.node]
        queue.pop(0)
        if queue:
            following = queue[0]
            self._after(
                self._delay("admission", following) / 4, lambda: self._admission_begins(following)
            )
        if trial.verdict.admitted:
            self.measures.admitted(pod.uid, self.now_s)
            self.measures.zones.admitted(pod, node)
            job.started_s = EPOCH_S + int(self.now_s)
            job.finished_s = EPOCH_S + int(self.now_s + job.task.lifetime_s)
            self._after(self._delay("status", job), lambda: self._publish_running(job))
            self._after(
                job.task.lifetime_s + self._delay("terminate", job), lambda: self._end_pod(job)
            )
        else:
            self.measures.rejected(node, pod, (job.decided_s, job.order), self.now_s, trial.verdict)
            reason = trial.verdict.reason
            self._after(
                self._delay("status", job), lambda: self._publish_end(job, "rejected", reason)
            )

    def _publish_running(self, job: Job) -> None:
        if job.pod is not None and job.pod.uid in self._jobs:
            self._publish(
                streams.pod(job.pod.uid), PodRunning(job.pod.uid, job.node, started_s=job.started_s)
            )

    def _end_pod(self, job: Job) -> None:
        """End the pod: its kubelet has freed its holdings. The API reports it a little later."""
        assert job.pod is not None
        delay_s = self._delay("status", job)
        reported_s = self.now_s if self._row.clairvoyant else self.now_s + delay_s
        self._nodes[job.node].end(job.pod, self.now_s, reported_s)
        self._note_change(job.node)
        self._after(delay_s, lambda: self._publish_end(job, "succeeded", ""))

    def _note_change(self, node: str) -> None:
        self._scan_after_change(node)
        if self._row.clairvoyant:
            self._row.happened(node)
            self._ask(DECIDE_S)

    def _publish_end(self, job: Job, cause: EndCause, reason: str) -> None:
        assert job.pod is not None
        uid = job.pod.uid
        del self._jobs[uid]
        self._publish(
            streams.pod(uid),
            PodEnded(
                uid, cause, job.node, reason, started_s=job.started_s, finished_s=job.finished_s
            ),
        )
        if cause == "rejected":
            again = Job(job.task, job.arrived_s, job.turn, job.member, job.attempts + 1)
            self._after(RETRY_S, lambda: self._retry(again, uid))
        elif job.member:
            self._recreate_member(job)

    def _retry(self, job: Job, rejected_uid: str) -> None:
        self.measures.replaced(rejected_uid)
        self._create_pod(job)

    def _recreate_member(self, job: Job) -> None:
        """Create a member of a set again, under its name."""
        delay_s = self._delay("recreate", job)
        name = job.task.name
        again = Job(
            member_task(name, job.turn + 1, self._cell.seed),
            self.now_s + delay_s,
            job.turn + 1,
            True,
        )
        self._after(delay_s, lambda: self._create_pod(again))

    # -- exporter
    # ----------------------------------------------------------------------------------------------

    def _scan(self, node: TrueNode) -> None:
        self._after(float(self._cell.interval_s), lambda: self._scan(node))
        self._publish_report(node)

    def _publish_report(self, node: TrueNode) -> None:
        self._due_scans.discard(node.name)
        self._scanned_s[node.name] = self.now_s
        if node.changed:
            made = node.report(self.now_s)
            delay_s = self._delays.draw("report", f"{node.name}/{self.now_s:.3f}")
            self._after(delay_s, lambda: self._report_arrives(made))

    def _scan_after_change(self, name: str) -> None:
        """Scan a node whose kubelet wrote its checkpoints, as an exporter does that reports
        changes: it looks four times a second.
        """
        if not self._cell.on_change or name in self._due_scans:
            return
        self._due_scans.add(name)
        look_s = self._delays.draw("look", f"{name}/{self.now_s:.3f}") + SETTLE_S
        gap_s = self._scanned_s.get(name, -MIN_GAP_S) + MIN_GAP_S - self.now_s
        self._after(max(look_s, gap_s), lambda: self._publish_report(self._nodes[name]))

    def _report_arrives(self, made: object) -> None:
        self._row.reported(made, self.now_s)  # type: ignore[arg-type]
        self._ask(DECIDE_S)

    def _sample(self) -> None:
        self.measures.sample()
        self._after(self.measures.sample_s, self._sample)
