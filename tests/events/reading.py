"""How a release reads events: `python -I tests/events/reading.py ARCHIVE < EVENTS` runs the code of
ARCHIVE, and `read` runs ours.

Events are JSON lines with the envelope's fields (the payload as text, without the chain). The
answer is one JSON object. `refused`: type and schema -> why it cannot be read. `decoded`: position
-> the event's fields. `aside`: quarantined streams. `promised`: after each event, uid -> stage and
node, and uid -> charged node, whether confirmed, and zone -> amounts. Must import nothing of the
project before ARCHIVE is on the path.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from typing import Any


def read(lines: Iterable[str]) -> dict[str, Any]:
    """Decode and fold the events."""
    import msgspec

    from shared.events import codec
    from shared.events.envelope import Envelope
    from shared.ledger import fold
    from shared.ledger.state import Ledger

    try:
        from shared.events import quarantine
    except ImportError:  # 0.1.0 has other names
        from shared.events import setting_aside as quarantine  # type: ignore[no-redef, attr-defined]
    undecodable = getattr(codec, "UndecodableEvent", None) or codec.UndecodableFact  # type: ignore[attr-defined]
    quarantined = getattr(quarantine, "QuarantinedStreams", None) or quarantine.Aside  # type: ignore[attr-defined]
    streams, ledger = quarantined(), Ledger()
    event_of = getattr(streams, "event_of", None) or streams.fact_of
    refused, decoded, promised = dict[str, str](), dict[str, Any](), list[Any]()
    for line in lines:
        fields = json.loads(line)
        envelope = Envelope(**{**fields, "payload": fields["payload"].encode()})
        try:
            decoded[str(envelope.position)] = msgspec.to_builtins(
                codec.decode(envelope), str_keys=True
            )
        except undecodable as error:
            refused[f"{envelope.type}.{envelope.schema}"] = str(error)
        event = event_of(envelope)
        if event is None:
            fold.pass_over(ledger, envelope)
            continue
        try:
            fold.evolve(ledger, envelope, event)
        except quarantine.UNFOLDABLE as error:
            (getattr(streams, "quarantine", None) or streams.spoilt)(envelope, error)
        promised.append(_promised(ledger))
    return {
        "refused": refused,
        "decoded": decoded,
        "aside": dict(streams.streams),
        "promised": promised,
    }


def _promised(ledger: Any) -> list[Any]:
    charges = {
        uid: _charged(name, charge)
        for name, node in ledger.nodes.items()
        for uid, charge in node.charges.items()
    }
    return [charges, {uid: [entry.stage, entry.node] for uid, entry in ledger.pods.items()}]


def _charged(node: str, charge: Any) -> list[Any]:
    if hasattr(charge, "proven"):  # 0.1.0 has other names
        is_confirmed, zones = charge.proven, charge.held or charge.zones
    else:
        is_confirmed, zones = charge.confirmed, charge.confirmed_zones or charge.zones
    return [node, is_confirmed, {str(zone): amounts for zone, amounts in zones.items()}]


if __name__ == "__main__":
    sys.path.insert(0, sys.argv[1])
    print(json.dumps(read(sys.stdin)))
