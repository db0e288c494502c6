"""The OverReserve cache: reservations are subtracted from every zone until a fingerprint match
discards them all.

A resync has upstream's three steps, which are separate because upstream's races happen between
them: `desynced` (which nodes are dirty), `updates` (which of them a fingerprint or a
reconfiguration allows to flush) and `flush` (replace the object, and drop every reservation of the
node).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import msgspec

from plugins.upstream_compat.amounts import ZERO, Quantities, minus
from plugins.upstream_compat.cache import Live, View
from plugins.upstream_compat.fingerprint import (
    InformerMode,
    ResyncMethod,
    computed,
    expectation,
    is_relevant,
)
from plugins.upstream_compat.foreign import Profiles
from plugins.upstream_compat.nrt import Nrt, Zone, ZoneResource
from plugins.upstream_compat.pod import Pod, effective_request
from shared.kubelet.fingerprint import check


class Settings(msgspec.Struct, frozen=True):
    """The cache's arguments. Scope `OnlyResources` means that no attribute watcher runs. With
    `mended` the cache learns nodes that appear later (R8), and compares reconfigured nodes (R4) and
    nodes without pods (R9) like all others.
    """

    detect_foreign: bool = True
    resync_method: ResyncMethod = "Autodetect"
    informer_mode: InformerMode = "Dedicated"
    watch_attributes: bool = True
    mended: bool = False


class Desynced(msgspec.Struct, frozen=True):
    """Names of dirty nodes, sorted: by refusals or foreign pods, and by a changed configuration."""

    maybe_overreserved: tuple[str, ...]
    config_changed: tuple[str, ...]


class OverReserve:
    """The nodes known at the start, with reservations and dirty marks since their last flush."""

    def __init__(
        self,
        nrts: Iterable[Nrt],
        profiles: Profiles,
        settings: Settings = Settings(),  # noqa: B008
    ) -> None:
        self._nrts = {nrt.name: nrt for nrt in nrts}
        self._profiles, self._settings = profiles, settings
        self.assumed: dict[str, dict[str, Quantities]] = {}
        self.maybe_overreserved: Counter[str] = Counter()
        self.foreign: Counter[str] = Counter()
        self.attr_update: Counter[str] = Counter()
        self.generation = 0
        self._views: dict[str, View] = {}

    def view(self, node: str, live: Live) -> View:
        """Return the cached object minus every reservation in every zone, never below zero. `live`
        is not called.
        """
        kept = self._views.get(node)
        if kept is None:
            kept = self._views[node] = self._view(node)
        return kept

    def _view(self, node: str) -> View:
        if self.foreign[node]:
            return View(None, fresh=False)
        nrt = self._nrts.get(node)
        reserved = self.assumed.get(node)
        return View(charged(nrt, reserved.values()) if nrt and reserved else nrt)

    def reserve(self, node: str, pod: Pod) -> None:
        """Store the pod's effective request under its name; ignored for a node without a cached
        object (R8).
        """
        if node in self._nrts:
            self.assumed.setdefault(node, {})[pod.key] = effective_request(pod)
            self._views.pop(node, None)

    def unreserve(self, node: str, pod: Pod) -> None:
        """Drop the reservation under the pod's name."""
        if self.assumed.get(node, {}).pop(pod.key, None) is not None:
            self._views.pop(node, None)

    def post_bind(self, node: str, pod: Pod) -> None:
        """Do nothing: the reservation stays until a flush."""

    def node_maybe_overreserved(self, node: str) -> None:
        """Count a refusal. One is enough, and the node need not be known."""
        self.maybe_overreserved[node] += 1

    def pod_event(self, pod: Pod) -> None:
        """Close the pod's node if the pod is foreign, for any event and phase."""
        nrt = self._nrts.get(pod.node_name)
        if not self._settings.detect_foreign or nrt is None:
            return
        if self._profiles.is_foreign(pod, nrt.resource_names):
            self.foreign[pod.node_name] += 1
            self._views.pop(pod.node_name, None)

    def nrt_event(self, event: str, nrt: Nrt) -> bool:
        """Notice only a MODIFIED of a known node with another Topology Manager configuration."""
        previous = self._nrts.get(nrt.name)
        if previous is None and self._settings.mended:
            self.flush([nrt])
        changed = event == "MODIFIED" and previous is not None and previous.manager != nrt.manager
        if changed and self._settings.watch_attributes:
            self.attr_update[nrt.name] += 1
        return changed

    def resync(self, live: Live, pods: Iterable[Pod]) -> None:
        """Run the three steps of a tick without a pause."""
        dirty = self.desynced()
        if dirty.maybe_overreserved or dirty.config_changed:
            self.flush(self.updates(dirty, live, pods))

    def desynced(self) -> Desynced:
        """Step 1: return the dirty nodes."""
        return Desynced(
            tuple(sorted({*self.maybe_overreserved, *self.foreign})),
            tuple(sorted(self.attr_update)),
        )

    def updates(self, dirty: Desynced, live: Live, pods: Iterable[Pod]) -> list[Nrt]:
        """Step 2: return the live objects to flush. A reconfigured node is taken without comparison
        (R4).
        """
        by_node: dict[str, list[Pod]] = {}
        for pod in pods:
            if is_relevant(pod, self._settings.informer_mode):
                by_node.setdefault(pod.node_name, []).append(pod)
        compared = [live(node) for node in dirty.maybe_overreserved]
        matching = [
            nrt for nrt in compared if nrt is not None and self._matches(nrt, by_node.get(nrt.name))
        ]
        reconfigured = [nrt for node in dirty.config_changed if (nrt := live(node)) is not None]
        if self._settings.mended:
            reconfigured = [
                nrt for nrt in reconfigured if self._matches(nrt, by_node.get(nrt.name))
            ]
        return matching + reconfigured

    def flush(self, nrts: Iterable[Nrt]) -> None:
        """Step 3: take over these objects, and drop every reservation and mark of their nodes,
        newer ones included.
        """
        flushed = list(nrts)
        for nrt in flushed:
            self._nrts[nrt.name] = nrt
            self._views.pop(nrt.name, None)
            self.assumed.pop(nrt.name, None)
            for marks in (self.maybe_overreserved, self.foreign, self.attr_update):
                marks.pop(nrt.name, None)
        self.generation += bool(flushed)

    def _matches(self, nrt: Nrt, pods: list[Pod] | None) -> bool:
        expected = expectation(nrt, self._settings.resync_method)
        if not (pods or self._settings.mended) or not expected.fingerprint:
            return False
        cached = self._nrts.get(nrt.name)
        computed_value = computed(
            pods or (), expected.only_exclusive, cached.resource_names if cached else ()
        )
        return check(expected.fingerprint, computed_value) == "match"


def charged(nrt: Nrt, reserved: Iterable[Quantities]) -> Nrt:
    """Return `nrt` with each request subtracted from each zone (of any type) that lists the
    resource, never below zero.
    """
    requests = list(reserved)
    zones = tuple(
        msgspec.structs.replace(zone, resources=_left(zone, requests)) for zone in nrt.zones
    )
    return msgspec.structs.replace(nrt, zones=zones)


def _left(zone: Zone, requests: list[Quantities]) -> tuple[ZoneResource, ...]:
    return tuple(_reduced(resource, requests) for resource in zone.resources)


def _reduced(resource: ZoneResource, requests: list[Quantities]) -> ZoneResource:
    available = resource.available
    for request in requests:
        wanted = request.get(resource.name)
        if wanted is not None:
            available = ZERO if available.nano < wanted.nano else minus(available, wanted)
    return msgspec.structs.replace(resource, available=available)
