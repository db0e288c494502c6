"""The states of running services (`GET /state`), compared with the same projections folded here.
Pure but for requests.

The scheduler reports the ledger's hash and the binder the hash of its work list, each at a
position. The topology-store knows its own events before it folds them, so it reports a hash of each
node at a version of its stream.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from services.binder import core as binder
from services.topology_store import following
from shared.domain.state_hash import state_hash
from shared.events.catalog import Event
from shared.events.envelope import Envelope
from shared.events.quarantine import UNFOLDABLE, QuarantinedStreams
from shared.ledger.state import Ledger
from shared.runtime.http_get import get
from shared.telemetry.reasons import plain

TIMEOUT_S = 5.0
NOT_FOUND = 404


class LiveState(msgspec.Struct, frozen=True):
    """The state of one service: `hash` of the whole at `position`, or `nodes` as node -> (version
    of its stream, hash). `service` is the name or URL of the request.
    """

    projection: str
    position: int
    hash: str = ""
    nodes: dict[str, tuple[int, str]] = {}
    service: str = ""


class Silent(msgspec.Struct, frozen=True):
    """A service without a usable state, and the reason."""

    service: str
    why: str


def fetch(service: str, url: str, token: str = "") -> LiveState | Silent | None:
    """Return the service's state; None if the service answers and has none."""
    try:
        state = msgspec.json.decode(get(url, token, TIMEOUT_S), type=LiveState)
    except (OSError, ValueError, msgspec.MsgspecError) as error:
        if getattr(error, "code", 0) == NOT_FOUND:
            return None
        hint = (
            ": is TOPOLOG_HTTP_TOKEN here what it is there?"
            if getattr(error, "code", 0) == 401
            else ""
        )
        return Silent(service, plain(error) + hint)
    return msgspec.structs.replace(state, service=service)


class Comparing:
    """Folds the services' projections up to the reported positions, and reports differences."""

    def __init__(self, states: Sequence[LiveState], skipped: Mapping[int, int]) -> None:
        self.differs: list[tuple[int, str]] = []
        self.compared: list[LiveState] = []
        self._waiting = [
            state for state in states if state.position > 0
        ]  # a service that has folded nothing yet has no state to compare
        self._binder = _Folding(skipped) if self._of("binder") else None
        self._stores = _Folding(skipped) if self._of("topology-store") else None
        self._work, self._nodes = binder.initial(), following.Nodes()
        self._reported = {id(state): dict(state.nodes) for state in self._of("topology-store")}

    def see(self, envelope: Envelope, ledger: Ledger) -> None:
        """Fold one event, which the ledger has folded already."""
        if self._binder is not None:
            self._fold_binder(self._binder, envelope)
        if self._stores is not None:
            self._fold_stores(self._stores, envelope)
        for state in [
            waiting for waiting in self._waiting if waiting.position == envelope.position
        ]:
            if state.projection == "ledger":
                self._compare(state, state_hash(ledger))
            elif state.projection == "binder":
                self._compare(state, binder.digest(self._work))

    def finish(self, position: int, broken: bool) -> None:
        """End the comparison at the head. A part that the log has not reached is not a
        difference.
        """
        for state in self._waiting:
            reported = self._reported.get(id(state), {})
            if state.projection == "topology-store":
                self.compared.append(state)
            for node, (version, _) in sorted(reported.items()) if not broken else ():
                self._differ(
                    state,
                    position,
                    f"version {version} of node {node}, which the log does not have",
                )
            if state.projection in ("ledger", "binder") and not broken:
                self._differ(state, state.position, "a position that the log does not have")
                self.compared.append(state)

    def _of(self, projection: str) -> list[LiveState]:
        return [state for state in self._waiting if state.projection == projection]

    def _compare(self, state: LiveState, folded: str) -> None:
        self._waiting.remove(state)
        self.compared.append(state)
        if folded != state.hash:
            self._differ(state, state.position, f"hash {state.hash}, folded from zero {folded}")

    def _differ(self, state: LiveState, position: int, what: str) -> None:
        self.differs.append((position, f"{state.service or state.projection} shows {what}"))

    def _fold_binder(self, folding: _Folding, envelope: Envelope) -> None:
        if not folding.fold(envelope, lambda event: binder.evolve(self._work, envelope, event)):
            binder.pass_over(self._work, envelope)
            if envelope.stream in folding.fresh():
                binder.quarantine(self._work, envelope.stream)

    def _fold_stores(self, folding: _Folding, envelope: Envelope) -> None:
        if not folding.fold(envelope, lambda event: following.evolve(self._nodes, envelope, event)):
            following.pass_over(self._nodes, envelope)
        if not envelope.stream.startswith(following.PREFIX):
            return
        node = envelope.stream.removeprefix(following.PREFIX)
        for state in self._of("topology-store"):
            version, reported_hash = self._reported[id(state)].get(node, (0, ""))
            if version == envelope.version:
                del self._reported[id(state)][node]
                folded = (
                    following.digests({node: self._nodes[node]}).get(node, (0, ""))[1]
                    if node in self._nodes
                    else ""
                )
                if folded != reported_hash:
                    self._differ(
                        state,
                        envelope.position,
                        f"hash {reported_hash} of node {node}, folded from zero {folded}",
                    )


class _Folding:
    """One more projection, folded as services do."""

    def __init__(self, skipped: Mapping[int, int]) -> None:
        self._quarantined = QuarantinedStreams(dict(skipped))
        self._returned: set[str] = set()

    def fold(self, envelope: Envelope, evolve: Callable[[Event], object]) -> bool:
        """Return whether the event was folded. Otherwise it must be passed over."""
        event = self._quarantined.event_of(envelope)
        if event is None:
            return False
        try:
            evolve(event)
        except UNFOLDABLE as error:
            self._quarantined.quarantine(envelope, error)
            return False
        return True

    def fresh(self) -> set[str]:
        """Return the streams quarantined since the last call."""
        quarantined = self._quarantined.streams.keys() - self._returned
        self._returned |= quarantined
        return quarantined
