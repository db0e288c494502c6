"""The zones that pods got, and whether some node would have given them fewer."""

from __future__ import annotations

from collections.abc import Mapping

from services.comparison.truth import TrueNode, parts_held
from shared.domain.pod import Pod
from shared.kubelet import admission


class ZoneCounts:
    """`pods` are admitted pods that hold something of zones, `zones` the zones of the widest part
    of each (`parts_held`), `aligned` the pods with one zone for each part.

    With `asks_every_node`, `alignable` pods are aligned, or would have been on some node at the
    moment of the decision; `missed` are the others among them. Nodes on which a pod ended unknown
    to the scheduler are not asked.
    """

    def __init__(self, nodes: Mapping[str, TrueNode], asks_every_node: bool = False) -> None:
        self._nodes, self._asks_every_node = nodes, asks_every_node
        self._could_be_aligned: dict[str, bool] = {}
        self.pods = self.zones = self.aligned = self.alignable = self.missed = 0

    def decided(self, pod: Pod, node: str, now_s: float) -> None:
        """Note whether some node would align the pod, which is about to be reserved on `node`. This
        node is asked first.
        """
        if self._asks_every_node:
            names = [node, *(name for name in self._nodes if name != node)]
            could = any(_aligns(self._nodes[name], pod, now_s) for name in names)
            self._could_be_aligned[pod.uid] = could

    def admitted(self, pod: Pod, node: TrueNode) -> None:
        """Count a pod that a kubelet admitted."""
        could_be_aligned = self._could_be_aligned.pop(pod.uid, False)
        widths = [mask.bit_count() for mask in node.zones_of(pod)]
        if not widths:
            return
        is_aligned = max(widths) == 1
        self.pods += 1
        self.zones += max(widths)
        self.aligned += is_aligned
        self.alignable += is_aligned or could_be_aligned
        self.missed += could_be_aligned and not is_aligned


def _aligns(node: TrueNode, pod: Pod, now_s: float) -> bool:
    """Return whether the kubelet would give each part one zone after it admitted all
    pending pods.
    """
    if any(recent.kind == "end" and recent.reported_s > now_s for recent in node.past):
        return False
    verdict = admission.admit(node.shadow(), pod)
    if not verdict.admitted or not node.has_room(pod):
        return False
    return all(mask.bit_count() == 1 for mask in parts_held(verdict.state, pod))
