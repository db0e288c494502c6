"""What running services say of their folds (`GET /state`), held against the same folds made here.
Pure but for asking.

The scheduler tells the ledger's hash and the binder that of its work list, each at a position; the
topology-store, which knows of its own facts before it folds them, tells a hash of each node at a
version of its stream.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from services.binder import core as binder
from services.topology_store import following
from shared.events.catalog import Event
from shared.events.envelope import Envelope
from shared.events.quarantine import UNFOLDABLE, QuarantinedStreams
from shared.ledger.digest import digest
from shared.ledger.state import Ledger
from shared.runtime.asking import get
from shared.telemetry.reasons import plain

TIMEOUT_S = 5.0
NOT_FOUND = 404


class LiveState(msgspec.Struct, frozen=True):
    """What one says: `hash` of all of it at `position`, or `nodes` as node -> (version of its
    stream, hash). `service` is what it was asked for by, its name or URL."""

    projection: str
    position: int
    hash: str = ""
    nodes: dict[str, tuple[int, str]] = {}
    service: str = ""


class Silent(msgspec.Struct, frozen=True):
    """One that said nothing of use, and why."""

    service: str
    why: str


def fetch(service: str, url: str, token: str = "") -> LiveState | Silent | None:
    """The service's state; None for one that answers and has none."""
    try:
        found = msgspec.json.decode(get(url, token, TIMEOUT_S), type=LiveState)
    except (OSError, ValueError, msgspec.MsgspecError) as error:
        if getattr(error, "code", 0) == NOT_FOUND:
            return None
        hint = (
            ": is TOPOLOG_HTTP_TOKEN here what it is there?"
            if getattr(error, "code", 0) == 401
            else ""
        )
        return Silent(service, plain(error) + hint)
    return msgspec.structs.replace(found, service=service)


class Comparing:
    """Folds what others have folded, as far as they told, and says where it comes out otherwise."""

    def __init__(self, states: Sequence[LiveState], skipped: Mapping[int, int]) -> None:
        self.differs: list[tuple[int, str]] = []
        self.compared: list[LiveState] = []
        self._waiting = [
            each for each in states if each.position > 0
        ]  # who has folded nothing yet says nothing
        self._binder = _Folding(skipped) if self._of("binder") else None
        self._stores = _Folding(skipped) if self._of("topology-store") else None
        self._work, self._nodes = binder.initial(), following.Nodes()
        self._told = {id(each): dict(each.nodes) for each in self._of("topology-store")}

    def see(self, envelope: Envelope, ledger: Ledger) -> None:
        """One fact, which the ledger has behind it."""
        if self._binder is not None:
            self._fold_binder(self._binder, envelope)
        if self._stores is not None:
            self._fold_stores(self._stores, envelope)
        for state in [each for each in self._waiting if each.position == envelope.position]:
            if state.projection == "ledger":
                self._compare(state, digest(ledger))
            elif state.projection == "binder":
                self._compare(state, binder.digest(self._work))

    def finish(self, position: int, broken: bool) -> None:
        """The log ends here; what it broke off before is nobody's difference."""
        for state in self._waiting:
            told = self._told.get(id(state), {})
            if state.projection == "topology-store":
                self.compared.append(state)
            for node, (version, _) in sorted(told.items()) if not broken else ():
                self._differ(
                    state,
                    position,
                    f"version {version} of node {node}, which the log does not have",
                )
            if state.projection in ("ledger", "binder") and not broken:
                self._differ(state, state.position, "a position that the log does not have")
                self.compared.append(state)

    def _of(self, projection: str) -> list[LiveState]:
        return [each for each in self._waiting if each.projection == projection]

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
                binder.set_aside(self._work, envelope.stream)

    def _fold_stores(self, folding: _Folding, envelope: Envelope) -> None:
        if not folding.fold(envelope, lambda event: following.evolve(self._nodes, envelope, event)):
            following.pass_over(self._nodes, envelope)
        if not envelope.stream.startswith(following.PREFIX):
            return
        node = envelope.stream.removeprefix(following.PREFIX)
        for state in self._of("topology-store"):
            version, told = self._told[id(state)].get(node, (0, ""))
            if version == envelope.version:
                del self._told[id(state)][node]
                folded = (
                    following.digests({node: self._nodes[node]}).get(node, (0, ""))[1]
                    if node in self._nodes
                    else ""
                )
                if folded != told:
                    self._differ(
                        state,
                        envelope.position,
                        f"hash {told} of node {node}, folded from zero {folded}",
                    )


class _Folding:
    """Facts for one more fold, as services take them."""

    def __init__(self, skipped: Mapping[int, int]) -> None:
        self._quarantined = QuarantinedStreams(dict(skipped))
        self._told: set[str] = set()

    def fold(self, envelope: Envelope, evolve: Callable[[Event], object]) -> bool:
        """Whether it was folded; else it is to be passed over."""
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
        """Streams that were set aside since it was asked last."""
        found = self._quarantined.streams.keys() - self._told
        self._told |= found
        return found
