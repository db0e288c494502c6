"""`replay verify`: folds the whole log and checks it. Hashes of live services are compared at their
own positions.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import msgspec

from services.replay import reading
from services.replay.filters import FilterError
from services.replay.live_states import Comparing, LiveState, Silent, fetch
from services.replay.verifying import Audit, Violation
from shared.domain.state_hash import state_hash
from shared.eventlog.errors import LogBroken
from shared.eventlog.port import EventLog
from shared.eventlog.redactions import redactions
from shared.eventlog.skips import skips
from shared.ledger.fold import GapError

# A service's name, and the URL of its state.
Asked = tuple[str, str]


class Verdict(msgspec.Struct):
    """The result of `verify`. `compared` are services whose state was compared with the log;
    `unreported` gave no state to compare.
    """

    positions: int
    streams: int
    hash: str
    events_per_s: float
    violations: list[Violation]
    compared: list[LiveState] = []
    unreported: list[Silent] = []
    rejected: int = 0
    live_pods: int = 0

    @property
    def ok(self) -> bool:
        return not self.violations

    def rows(self) -> list[list[str]]:
        """Return one row per invariant."""
        broken = {violation.invariant for violation in self.violations}
        names = {
            "S1": "positions 1..n without a hole",
            "S2": "versions 1..m on every stream",
            "S3": "no append from an older epoch",
            "S5": "every pod bound at most once",
            "S6": f"equal positions, equal state ({len(self.compared)} live state(s) compared)",
            "S7": "every effect has an earlier intent",
            "S9": f"no pods, no charges ({self.live_pods} live pod(s))",
            "facts": "every event can be read and folded",
            "history": "every row is what was appended, by the hash chain",
            "ledger": "bounds equal those of a second computation",
        }
        return [
            [f"{key} {text}", "BROKEN" if key in broken else "holds"] for key, text in names.items()
        ]


async def verify(
    log: EventLog, services: Sequence[Asked], named: Sequence[str] = (), token: str = ""
) -> Verdict:
    """Fold the whole log and check it.

    A service in `services` that is down has no state to compare; that is reported and is not a
    violation. A service in `named` (URLs) must answer: raises FilterError.
    """
    answers = [fetch(name, url, token) for name, url in services]
    live = [answer for answer in answers if isinstance(answer, LiveState)] + [
        _required(url, token) for url in named
    ]
    audit, begun, head = Audit(), time.monotonic(), await log.head()
    comparing = Comparing(live, {})
    try:
        audit.quarantined.skipped, audit.redacted = await skips(log), await redactions(log)
        comparing = Comparing(live, audit.quarantined.skipped)
        async for envelope in reading.envelopes(log, 0, head):
            audit.see(envelope)
            comparing.see(envelope, audit.ledger)
    except GapError as error:
        audit.violations.append(
            Violation("S1", audit.ledger.position + 1, f"{error}; what follows was not checked")
        )
    except LogBroken as error:
        audit.violations.append(
            Violation(
                "history", audit.ledger.position + 1, f"{error}; what follows was not checked"
            )
        )
    broken = audit.ledger.position < head
    if broken and not audit.violations:
        audit.violations.append(
            Violation(
                "S1", audit.ledger.position + 1, f"cannot be read, though the log goes to {head}"
            )
        )
    comparing.finish(audit.ledger.position, broken)
    audit.violations += [
        Violation("S6", position, message) for position, message in comparing.differs
    ]
    violations = audit.finish()
    return Verdict(
        positions=audit.ledger.position,
        streams=len(audit.versions),
        hash=state_hash(audit.ledger),
        events_per_s=audit.ledger.position / max(time.monotonic() - begun, 1e-9),
        violations=violations,
        compared=comparing.compared,
        unreported=[answer for answer in answers if isinstance(answer, Silent)],
        rejected=audit.rejected,
        live_pods=len(audit.ledger.pods),
    )


def _required(url: str, token: str) -> LiveState:
    state = fetch(url, url, token)
    if isinstance(state, LiveState):
        return state
    why = state.why if state is not None else "it has none (HTTP 404)"
    raise FilterError(
        f"--service {url}: no state of a service: {why}", "topolog replay verify, without --service"
    )
