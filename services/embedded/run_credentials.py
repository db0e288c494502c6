"""`python -m services.embedded.run_credentials`: create the key of one exporter. NATS notices it.

Environment: TOPOLOG_NATS_CREDENTIALS_DIR, the folder that NATS reads; TOPOLOG_NATS_CREDENTIAL, the
exporter's name; its nodes in TOPOLOG_NODES_FILE (JSON [{name, ...}]), else NODE_NAME. An existing
key is kept.
"""

import asyncio
import os
import sys
from pathlib import Path

import msgspec

from services.embedded.container import main, required
from services.embedded.errors import EmbeddedError
from services.embedded.nats_credentials import keep, names_in


async def serve() -> None:
    """Create the key. Raises EmbeddedError."""
    file = os.environ.get("TOPOLOG_NODES_FILE", "")
    folder, name, *_ = required(
        "TOPOLOG_NATS_CREDENTIALS_DIR", "TOPOLOG_NATS_CREDENTIAL", *([] if file else ["NODE_NAME"])
    )
    try:
        nodes = names_in(Path(file)) if file else [os.environ["NODE_NAME"]]
    except (OSError, msgspec.MsgspecError) as error:
        raise EmbeddedError(
            f"TOPOLOG_NODES_FILE={file} cannot be read: {error}",
            "Use the exporter's file of nodes",
        ) from error
    keep(Path(folder), [(name, nodes)])
    print(f"the exporter {name} has a key for {len(nodes)} node(s)")


if __name__ == "__main__":
    sys.exit(main(lambda: asyncio.wait_for(serve(), timeout=60)))
