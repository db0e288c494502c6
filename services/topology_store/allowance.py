"""The limits of all reports together: rate of a node, number of nodes, bytes, and resource names.

The scheduler keeps a row for each resource name and a column for each node, so the names that
exporters may invent are bounded here. Time arrives as a number.
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

    __slots__ = ("_burst", "_per_s", "_tokens", "_updated_s")

    def __init__(self, per_s: float, burst: float) -> None:
        self._per_s, self._burst, self._tokens, self._updated_s = per_s, burst, burst, 0.0

    def take(self, now_s: float) -> bool:
        """Take a token and return whether there was one."""
        self._tokens = min(
            self._burst, self._tokens + max(now_s - self._updated_s, 0.0) * self._per_s
        )
        self._updated_s = now_s
        if self._tokens < 1.0:
            return False
        self._tokens -= 1.0
        return True


class Allowance:
    """Counts believed reports (`record`) and refuses those above a limit (`problem_of`)."""

    def __init__(self) -> None:
        self._all = Bucket(ALL_PER_S, ALL_BURST)
        self._rates: dict[str, Bucket] = {}
        self._bytes: dict[str, int] = {}
        self._sum_bytes = 0
        self._names: dict[str, frozenset[str]] = {}
        self._uses: dict[str, int] = {}

    def problem_of(self, report: Report, size_bytes: int, now_s: float, named: bool = False) -> str:
        """Return why the report is refused, empty if it is not. Nodes with a Node object
        (`named`) do not count towards the limit of nodes."""
        has_reported = report.node in self._names
        if not has_reported and not named and len(self._names) >= NODES:
            return f"node: more than {NODES} nodes report; stop what publishes under invented names"
        if not self._all.take(now_s) or (has_reported and not self._rates[report.node].take(now_s)):
            return (
                f"too many reports at once (a node may send {NODE_PER_S:g} a second, "
                f"all {ALL_PER_S:g}); a later one counts"
            )
        if self._sum_bytes - self._bytes.get(report.node, 0) + size_bytes > BYTES:
            return (
                f"{size_bytes} bytes are too many in addition to the other nodes' reports "
                f"(at most {BYTES} in the whole cluster)"
            )
        new_names = [name for name in _names(report) if name not in self._uses]
        if new_names and len(self._uses) + len(new_names) > RESOURCE_NAMES:
            return (
                f"zones: {new_names[0][:80]!r} is one resource too many "
                f"(at most {RESOURCE_NAMES} names in the whole cluster)"
            )
        return ""

    def record(self, node: str, report: Report, size_bytes: int) -> None:
        self._sum_bytes += size_bytes - self._bytes.get(node, 0)
        self._bytes[node] = size_bytes
        old_names, new_names = self._names.get(node, frozenset()), _names(report)
        self._rates.setdefault(node, Bucket(NODE_PER_S, NODE_BURST))
        self._names[node] = new_names
        if old_names == new_names:
            return
        for name in new_names - old_names:
            self._uses[name] = self._uses.get(name, 0) + 1
        self._forget(old_names - new_names)

    def release(self, node: str) -> None:
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
