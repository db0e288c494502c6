"""One simulated kubelet, action by action: what podresources shows at every moment in between."""

from __future__ import annotations

from pathlib import Path

from services.exporter.podresources import podresources_pb2 as pb
from services.simulator import kubelet
from services.simulator.agenda import Agenda
from services.simulator.cluster import GPU, NodeShape, Policies, lay_out
from services.simulator.kubelet_agent import Delays, KubeletAgent
from shared.domain.pod import Container, Pod

GIB = 1 << 30


class Quiet:
    """Posts that are ignored."""

    def started(self, pod: Pod) -> None: ...

    def refused(self, pod: Pod, reason: str, message: str) -> None:
        raise AssertionError(f"{pod.name}: {message}")

    def stopped(self, pod: Pod) -> None: ...


def asking(name: str, containers: int, **more: int) -> Pod:
    amounts = {"cpu": 1000, "memory": GIB, **more}
    parts = tuple(Container(f"c{number}", "app", amounts, amounts) for number in range(containers))
    return Pod(f"uid-{name}", "ns", name, "Guaranteed", parts)


def shows_something(agent: KubeletAgent, name: str) -> bool:
    (listed,) = (
        pod_resource
        for pod_resource in pb.ListPodResourcesResponse.FromString(agent.list_bytes()).pod_resources
        if pod_resource.name == name
    )
    return any(container.cpu_ids or container.devices for container in listed.containers)


def test_a_pod_under_admission_holds_something_at_every_moment(tmp_path: Path) -> None:
    """A kubelet finds zones and allocates in one step. Otherwise an end could come in between,
    neither before nor after the admission.
    """
    shape = NodeShape(2, 16, 16 * GIB, {GPU: 2})
    agenda, now_s = Agenda(), 0.0
    agent = KubeletAgent(
        kubelet.start(lay_out("n", shape, Policies())),
        tmp_path,
        Delays(),
        agenda,
        lambda: now_s,
        Quiet(),
    )
    for made in (asking("one", 1), asking("two", 3), asking("three", 1, **{GPU: 1})):
        agent.assign(made)
    begun: set[str] = set()
    while (moment := agenda.next_at) is not None:
        now_s = moment
        action = agenda.next_due(now_s)
        assert action is not None
        action()
        for node_pod in agent.node.pods.values():
            if node_pod.phase != "waiting":
                begun.add(node_pod.pod.name)
                assert shows_something(agent, node_pod.pod.name), node_pod.pod.name
    assert begun == {"one", "two", "three"}
