"""`python -m tests.events.make_vectors`: write the missing vectors of event types and schemas. It
never rewrites one.

A vector is a promise: a stored event decodes forever to these values. When an event's schema grows,
the old files stay.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from shared.events.catalog import CATALOG
from shared.events.codec import encode
from tests.events.samples import full, minimal, plain

FOLDER = Path(__file__).parent / "vectors"


def path_of(name: str, schema: int) -> Path:
    """Return the path of the vector of a type and schema."""
    return FOLDER / f"{name}.{schema}.json"


def main() -> None:
    """Write the missing vectors."""
    for name, entry in sorted(CATALOG.items()):
        path = path_of(name, entry.schema)
        if path.exists():
            continue
        cases = {
            "full": full(entry.struct),
            "minimal": minimal(entry.struct),
        }
        vector = {
            "type": name,
            "schema": entry.schema,
            "cases": [
                {"name": case, "payload": encode(event).decode(), "decoded": plain(event)}
                for case, event in cases.items()
            ],
        }
        path.write_text(msgspec.json.format(msgspec.json.encode(vector), indent=1).decode() + "\n")
        print(f"wrote {path.name}")


if __name__ == "__main__":
    main()
