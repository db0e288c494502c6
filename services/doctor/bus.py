"""Judge the bus: streams that are missing, nearly full, or have too few replicas. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from services.doctor.finding import Finding, note, problem, warning
from shared.bus.description import StreamState
from shared.bus.port import REPORT_BYTES

ABOUT = "bus"
NEARLY_FULL = 0.9


def judge(streams: Sequence[StreamState]) -> Iterator[Finding]:
    """Yield the findings of each stream."""
    for stream in streams:
        if not stream.exists:
            remedy = "kubectl -n topolog rollout restart deploy/topology-store deploy/scheduler"
            yield problem(ABOUT, f"the stream {stream.name} does not exist", remedy)
            continue
        used = stream.bytes / stream.max_bytes if stream.max_bytes > 0 else 0.0
        text = (
            f"{stream.name}: {stream.messages} messages, "
            f"{stream.bytes / 1e6:.1f} of {stream.max_bytes / 1e6:.0f} MB"
        )
        if stream.keeps_newest_of_each and used > NEARLY_FULL:
            yield warning(
                ABOUT,
                f"{text}: reports of some nodes will be dropped",
                f"TOPOLOG_NATS_NODES={_enough(stream.bytes)} for topology-store and scheduler",
            )
        else:
            yield note(ABOUT, f"{text}, {stream.replicas} replica(s)")
        if stream.servers > stream.replicas:
            yield warning(
                ABOUT,
                f"{stream.name} is stored on {stream.replicas} of {stream.servers} servers",
                "TOPOLOG_NATS_REPLICAS=3 for topology-store and scheduler",
            )
        if stream.lagging:
            yield warning(
                ABOUT,
                f"{stream.name}: replicas behind: {', '.join(stream.lagging)}",
                "kubectl -n topolog logs nats-0",
            )


def _enough(used_bytes: int) -> int:
    """Return a number of nodes with room for twice these reports, in thousands."""
    return -(-2 * used_bytes // (1000 * REPORT_BYTES)) * 1000
