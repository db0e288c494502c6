"""Topology over HTTP: `/topology` (what reports, or should), `/topology/{node}`, and a node as it
stood with `?position=N`. `/state` tells what `topolog replay verify` compares."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from services.topology_store import core, following
from services.topology_store.core import Known
from services.topology_store.handlers import Reports
from shared.eventlog.port import EventLog
from shared.eventlog.whole_stream import envelopes_of
from shared.events import streams
from shared.events.codec import UndecodableEvent, decode
from shared.kube import nrt
from shared.runtime.app import Service
from shared.runtime.http import json_response


def serve(service: Service, reports: Reports, log: EventLog) -> None:
    """Add the routes."""

    async def listing(_request: Request) -> Response:
        items = [
            summary(name, known)
            for name, known in sorted(reports.known.items())
            if known.version and not known.left
        ]
        return json_response({"nodes": items})

    async def node(request: Request) -> Response:
        name, at = request.path_params["node"], request.query_params.get("position", "")
        if at and not (at.isascii() and at.isdigit() and len(at) < 19):
            return json_response(
                {"error": f"position={at!r} is not a number; give a position of the log"}, 400
            )
        try:
            known = await _as_it_stood(log, name, int(at)) if at else reports.known.get(name)
        except UndecodableEvent as error:
            return json_response({"error": str(error)}, 500)
        if known is None or known.report is None:
            return json_response(
                {"error": f"node {name!r} has not reported; see /topology for those that have"}, 404
            )
        if not at and known.gone:
            why = f"the Node object of {name!r} is gone and it is silent; /topology/{name}?position=N shows it as it stood"
            return json_response({"error": why}, 404)
        return json_response({**summary(name, known), "topology": nrt.to_nrt(known.report)})

    async def state(_request: Request) -> Response:
        nodes = following.digests(reports.known)
        return json_response(
            {"projection": "topology-store", "position": reports.position, "nodes": nodes}
        )

    service.route("/state", state)
    service.route("/topology", listing)
    service.route("/topology/{node}", node)


def summary(name: str, known: Known) -> dict[str, object]:
    """One row of the listing."""
    report = known.report
    return {
        "node": name,
        "version": known.version,
        "expired": known.expired,
        "locked": known.locked,
        "boot_id": report.boot_id if report else "",
        "zones": len(report.zones) if report else 0,
        "policy": report.policy if report else "",
    }


async def _as_it_stood(log: EventLog, node: str, position: int) -> Known | None:
    known = core.initial()
    async for envelope in envelopes_of(log, streams.report(node)):
        if envelope.position > position:
            break
        known = core.evolve(known, decode(envelope), envelope.version, envelope.time_us // 1000)
    return known
