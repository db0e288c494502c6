"""Nodes that NodeResourceTopology objects describe: a report on its way through an object, and the
comparison by fingerprint that confirms it.
"""

from __future__ import annotations

from services.topology_store.intake import read_object
from services.topology_store.validation import RefusedReport
from shared.domain.report import Report
from shared.events.scheduling_events import NodeReconciled
from shared.kube.nrt import to_nrt
from shared.ledger.fingerprints import match
from tests.scheduler.cycle_worlds import World


def through_object(report: Report, version: int = 1) -> Report:
    """Return the report that the topology-store reads from the node's object."""
    topology = to_nrt(report)
    topology["metadata"] |= {"uid": f"object-of-{report.node}", "resourceVersion": str(version)}
    received = read_object(topology)
    if isinstance(received, RefusedReport):
        raise ValueError(received.problem)
    return received


def compare(world: World, name: str) -> bool:
    """Confirm the node's pods by fingerprint, as a scheduler does; False if it does not match."""
    node = world.ledger.nodes[name]
    matched = match(world.ledger, node)
    if matched is None:
        return False
    event = NodeReconciled(name, "fingerprint", node.report_version, matched.position, "")
    world.fold(f"node/{name}", event)
    return True
