"""`replay verify`: fold everything from zero and check; live services' hashes are compared at their own positions."""

from __future__ import annotations

import time
from collections.abc import Sequence
from urllib.request import urlopen

import msgspec

from services.replay import reading
from services.replay.filters import FilterError
from services.replay.verifying import Audit, Violation
from shared.eventlog.port import EventLog
from shared.eventlog.redactions import redactions
from shared.eventlog.skips import skips
from shared.ledger.digest import digest
from shared.ledger.fold import GapError
from shared.telemetry.reasons import plain


class LiveState(msgspec.Struct, frozen=True):
    """What a running service says of its fold (`GET /state`)."""

    projection: str
    position: int
    hash: str


class Verdict(msgspec.Struct):
    """What `verify` found."""

    positions: int
    streams: int
    hash: str
    facts_per_s: float
    violations: list[Violation]
    compared: list[LiveState] = []
    rejected: int = 0
    live_pods: int = 0

    @property
    def ok(self) -> bool:
        """True when nothing is broken."""
        return not self.violations

    def rows(self) -> list[list[str]]:
        """A row an invariant."""
        broken = {violation.invariant for violation in self.violations}
        names = {
            "S1": "positions 1..n without a hole",
            "S2": "versions 1..m on every stream",
            "S3": "no append from an older epoch",
            "S5": "every pod bound at most once",
            "S6": f"equal positions, equal state ({len(self.compared)} live state(s) compared)",
            "S7": "every effect has an earlier intent",
            "S9": f"no pods, no charges ({self.live_pods} live pod(s))",
            "facts": "every fact can be read and folded",
            "history": "every row is what was appended, by the hash chain",
            "ledger": "bounds equal those computed anew",
        }
        return [[f"{key} {text}", "BROKEN" if key in broken else "holds"] for key, text in names.items()]


async def verify(log: EventLog, state_urls: list[str], named: Sequence[str] = ()) -> Verdict:
    """Fold everything from zero and check. A service of `state_urls` that is down has no state to compare, which is no violation;
    one of `named` must answer: raises FilterError."""
    live = [state for url in state_urls if isinstance(state := _fetch_state(url), LiveState)]
    for url in named:
        state = _fetch_state(url)
        if isinstance(state, str):
            raise FilterError(f"--service {url}: no state of a service: {state}", "topolog replay verify, without --service")
        live.append(state)
    wanted = {state.position: state for state in live if state.projection == "ledger"}
    audit, begun, hashes = Audit(), time.monotonic(), {}
    end = max([await log.head(), *wanted])
    audit.aside.skipped, audit.redacted = await skips(log), await redactions(log)
    try:
        async for envelope in reading.envelopes(log, 0, end):
            audit.see(envelope)
            if envelope.position in wanted:
                hashes[envelope.position] = digest(audit.ledger)
    except GapError as error:
        audit.violations.append(Violation("S1", audit.ledger.position + 1, f"{error}; what follows was not checked"))
    for position, state in wanted.items():
        folded = hashes.get(position, "")
        if folded != state.hash:
            audit.violations.append(Violation("S6", position, f"live hash {state.hash}, folded from zero {folded}"))
    violations = audit.finish()
    rate = audit.ledger.position / max(time.monotonic() - begun, 1e-9)
    return Verdict(
        positions=audit.ledger.position,
        streams=len(audit.versions),
        hash=digest(audit.ledger),
        facts_per_s=rate,
        violations=violations,
        compared=list(wanted.values()),
        rejected=audit.rejected,
        live_pods=len(audit.ledger.pods),
    )


def _fetch_state(url: str) -> LiveState | str:
    """The service's state, or why there is none."""
    try:
        with urlopen(url, timeout=5) as answer:
            return msgspec.json.decode(answer.read(), type=LiveState)
    except (OSError, ValueError, msgspec.MsgspecError) as error:
        return plain(error)
