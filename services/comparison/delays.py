"""The delays of a simulated cluster in virtual seconds, each drawn from a distribution below.

A draw depends only on the seed, its kind and its subject, so that every row of the table has the
same delays. The delays of an admission are those of a recorded node (a pod is listed with nothing
for 45 to 210 ms, then half admitted for 20 to 45 ms); the others are assumed.
"""

from __future__ import annotations

import xxhash

Range = tuple[float, float]
RARE = 0.05

# Kind -> uniform range, and the range of one draw in twenty (None: never).
KINDS: dict[str, tuple[Range, Range | None]] = {
    # From a change in the API until the scheduler sees it.
    "watch": ((0.005, 0.030), None),
    # From a reservation until the API has the binding.
    "bind": ((0.010, 0.060), (0.5, 2.0)),
    # From the binding until the kubelet lists the pod, with nothing.
    "kubelet_watch": ((0.010, 0.100), None),
    # From the listing until the admission begins; a kubelet admits one pod at a time.
    "admission": ((0.045, 0.210), (1.0, 5.0)),
    # Each visible step of an admission: devices, CPUs, memory.
    "step": ((0.020, 0.045), None),
    # From a kubelet's answer or a pod's end until the scheduler sees it.
    "status": ((0.050, 0.500), None),
    # From the end of a pod's work until its kubelet frees its resources.
    "terminate": ((0.1, 2.0), None),
    # From podresources List until the report is an event.
    "report": ((0.020, 0.200), None),
    # From the end of a StatefulSet's pod until its successor of the same name exists.
    "recreate": ((0.1, 1.0), None),
    # From a change of a checkpoint until an exporter that reports on change reads it.
    "look": ((0.0, 0.25), None),
}


class Delays:
    """Draws delays. Equal seeds give equal delays."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def draw(self, kind: str, what: str) -> float:
        """Return the delay of this kind for one subject."""
        usual, rare = KINDS[kind]
        bits = xxhash.xxh3_64_intdigest(f"{kind}/{what}".encode(), self._seed)
        share = (bits >> 11) / 2**53
        if rare is not None and share < RARE:
            return _within(rare, share / RARE)
        return _within(usual, share if rare is None else (share - RARE) / (1 - RARE))


def _within(bounds: Range, share: float) -> float:
    return bounds[0] + share * (bounds[1] - bounds[0])
