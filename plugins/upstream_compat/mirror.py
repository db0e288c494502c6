"""What the Kubernetes API would show the plugin, folded from events: NRT objects, node resources,
and the pod lister.

The plugin itself reads the API. Here the log replaces it, so that compat mode runs on the same
events as the default. Ended pods leave the lister at once, although a report may still list them,
as for the plugin.
"""

from __future__ import annotations

import msgspec

from plugins.upstream_compat.node import offered
from plugins.upstream_compat.nrt import Nrt, from_report
from plugins.upstream_compat.pod import Pod, from_domain
from shared.domain.report import Report
from shared.events import cluster_events as cluster
from shared.events import report_events as report
from shared.events.catalog import Event
from shared.ledger.reports import apply_change


class NrtSeen(msgspec.Struct, frozen=True):
    """An object as a watch would deliver it; `event` is ADDED or MODIFIED."""

    event: str
    nrt: Nrt


class PodSeen(msgspec.Struct, frozen=True):
    """A pod as its informer would deliver it, whatever the event."""

    pod: Pod


Seen = NrtSeen | PodSeen | None


class Mirror:
    """The API as of the last event. A pure fold: equal events give equal answers."""

    def __init__(self) -> None:
        self._reports: dict[str, Report] = {}
        self._nrts: dict[str, Nrt] = {}
        self._offered: dict[str, frozenset[str]] = {}
        self._pods: dict[str, Pod] = {}

    def evolve(self, event: Event) -> Seen:
        """Fold one event. Return what an informer or a watch would have delivered for it."""
        match event:
            case report.NodeReported():
                return self._reported(event.report)
            case report.NodeReportChanged() if event.node in self._reports:
                return self._reported(apply_change(self._reports[event.node], event))
            case cluster.NodeObserved():
                self._offered[event.name] = offered(event.allocatable)
            case cluster.NodeEnded():
                self._forget_node(event.name)
            case cluster.PodObserved():
                return self._pod(event.pod.uid, from_domain(event.pod, event.node, event.phase))
            case cluster.PodRunning() if event.uid in self._pods:
                running = msgspec.structs.replace(
                    self._pods[event.uid], node_name=event.node, phase="Running"
                )
                return self._pod(event.uid, running)
            case cluster.PodEnded() if event.uid in self._pods:
                return PodSeen(self._pods.pop(event.uid))
        return None

    def live(self, node: str) -> Nrt | None:
        """Return the node's object, as a GET would."""
        return self._nrts.get(node)

    def offered(self, node: str) -> frozenset[str] | None:
        """Return the node's resource names; None if there is no such node."""
        return self._offered.get(node)

    def pod(self, uid: str) -> Pod | None:
        """Return a live pod as the plugin reads it."""
        return self._pods.get(uid)

    def nodes(self) -> list[str]:
        """Return the names of the nodes, sorted."""
        return sorted(self._offered)

    def nrts(self) -> list[Nrt]:
        """Return every object, as the list at the start has them."""
        return [self._nrts[name] for name in sorted(self._nrts)]

    def lister(self) -> list[Pod]:
        """Return every live pod, in the order first seen."""
        return list(self._pods.values())

    def _reported(self, current: Report) -> NrtSeen:
        event = "MODIFIED" if current.node in self._nrts else "ADDED"
        self._reports[current.node], self._nrts[current.node] = current, from_report(current)
        return NrtSeen(event, self._nrts[current.node])

    def _forget_node(self, name: str) -> None:
        for mapping in (self._reports, self._nrts, self._offered):
            mapping.pop(name, None)
        for uid in [uid for uid, pod in self._pods.items() if pod.node_name == name]:
            del self._pods[uid]

    def _pod(self, uid: str, pod: Pod) -> PodSeen:
        self._pods[uid] = pod
        return PodSeen(pod)
