"""What a release makes of facts: `python -I tests/events/reading.py ARCHIVE < FACTS` by the code of
ARCHIVE, `read` by ours.

Facts are JSON lines with the envelope's fields (the payload as text, the chain left out). The
answer is one JSON object: `refused`, type and schema -> why it cannot be read; `decoded`, position
-> the fact's fields; `aside`, streams set aside; `promised`, after each fact uid -> stage and node,
and uid -> charged node, whether proven, and zone -> amounts. Must import nothing of the project
before ARCHIVE leads.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from typing import Any


def read(lines: Iterable[str]) -> dict[str, Any]:
    """Decode and fold."""
    import msgspec

    from shared.events import codec
    from shared.events.envelope import Envelope
    from shared.ledger import fold
    from shared.ledger.state import Ledger

    try:
        from shared.events import exclusions
    except ImportError:  # 0.1.0 has other names
        from shared.events import setting_aside as exclusions  # type: ignore[no-redef, attr-defined]
    undecodable = getattr(codec, "UndecodableEvent", None) or codec.UndecodableFact  # type: ignore[attr-defined]
    aside, ledger = exclusions.Aside(), Ledger()
    event_of = getattr(aside, "event_of", None) or aside.fact_of  # type: ignore[attr-defined]
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
        except exclusions.UNFOLDABLE as error:
            aside.spoilt(envelope, error)
        promised.append(_promised(ledger))
    return {
        "refused": refused,
        "decoded": decoded,
        "aside": dict(aside.streams),
        "promised": promised,
    }


def _promised(ledger: Any) -> list[Any]:
    charges = {
        uid: [
            name,
            charge.proven,
            {str(zone): amounts for zone, amounts in (charge.held or charge.zones).items()},
        ]
        for name, node in ledger.nodes.items()
        for uid, charge in node.charges.items()
    }
    return [charges, {uid: [entry.stage, entry.node] for uid, entry in ledger.pods.items()}]


if __name__ == "__main__":
    sys.path.insert(0, sys.argv[1])
    print(json.dumps(read(sys.stdin)))
