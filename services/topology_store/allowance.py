"""What reports may take of the whole: how often a node may report, how many nodes, bytes and
resource names there may be in all.

The scheduler keeps a row a resource name and a column a node: what exporters may invent is bounded
here. Keeps counts, by node; time arrives as a number. Must not know what a report says beyond
names.
"""

from __future__ import annotations

from shared.domain.report import Report

NODES = 20_000
RESOURCE_NAMES = 512
BYTES = 1 << 30
NODE_PER_S, NODE_BURST = 20.0, 100.0
ALL_PER_S, ALL_BURST = 5_000.0, 40_000.0


class Bucket:
    """A token bucket."""

    __slots__ = ("_at_s", "_burst", "_left", "_per_s")

    def __init__(self, per_s: float, burst: float) -> None:
        self._per_s, self._burst, self._left, self._at_s = per_s, burst, burst, 0.0

    def take(self, now_s: float) -> bool:
        """Whether one more is within the rate."""
        self._left = min(self._burst, self._left + max(now_s - self._at_s, 0.0) * self._per_s)
        self._at_s = now_s
        if self._left < 1.0:
            return False
        self._left -= 1.0
        return True


class Allowance:
    """Counts what was believed (`holds`) and says what goes beyond (`refuses`)."""

    def __init__(self) -> None:
        self._all = Bucket(ALL_PER_S, ALL_BURST)
        self._rates: dict[str, Bucket] = {}
        self._bytes: dict[str, int] = {}
        self._sum_bytes = 0
        self._names: dict[str, frozenset[str]] = {}
        self._uses: dict[str, int] = {}

    def refuses(self, report: Report, size_bytes: int, now_s: float, named: bool = False) -> str:
        """Why the report is not looked at, empty when it is. Nodes that Node objects name (`named`)
        are as many as they are.
        """
        known = report.node in self._names
        if not known and not named and len(self._names) >= NODES:
            return f"node: more than {NODES} nodes report; stop what publishes under invented names"
        if not self._all.take(now_s) or (known and not self._rates[report.node].take(now_s)):
            return f"too many reports at once (a node may send {NODE_PER_S:g} a second, all {ALL_PER_S:g}); a later one counts"
        if self._sum_bytes - self._bytes.get(report.node, 0) + size_bytes > BYTES:
            return f"{size_bytes} bytes are too many beside what the other nodes report (at most {BYTES} in the whole cluster)"
        fresh = [name for name in _names(report) if name not in self._uses]
        if fresh and len(self._uses) + len(fresh) > RESOURCE_NAMES:
            return f"zones: {fresh[0][:80]!r} is one resource too many (at most {RESOURCE_NAMES} names in the whole cluster)"
        return ""

    def holds(self, node: str, report: Report, size_bytes: int) -> None:
        """What the node reports now."""
        self._sum_bytes += size_bytes - self._bytes.get(node, 0)
        self._bytes[node] = size_bytes
        before, now = self._names.get(node, frozenset()), _names(report)
        self._rates.setdefault(node, Bucket(NODE_PER_S, NODE_BURST))
        self._names[node] = now
        if before == now:
            return
        for name in now - before:
            self._uses[name] = self._uses.get(name, 0) + 1
        self._forget(before - now)

    def releases(self, node: str) -> None:
        """The node takes nothing any more."""
        self._sum_bytes -= self._bytes.pop(node, 0)
        self._rates.pop(node, None)
        self._forget(self._names.pop(node, frozenset()))

    def _forget(self, names: frozenset[str]) -> None:
        for name in names:
            self._uses[name] -= 1
            if not self._uses[name]:
                del self._uses[name]


def _names(report: Report) -> frozenset[str]:
    return frozenset(name for zone in report.zones for name in zone.resources)
