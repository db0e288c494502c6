"""`python -m services.embedded.run_certificates`: create the certificate of a NATS server in
another container.

Environment: TOPOLOG_NATS_TLS_NAMES, the names under which clients reach the server;
TOPOLOG_NATS_TLS_DIR, the folder for tls.crt, tls.key and the authority; TOPOLOG_NATS_CA_DIR, a
folder that clients read, for a copy of ca.crt. Valid certificates are kept.
"""

import asyncio
import sys
from pathlib import Path

from services.embedded.certificates import ensure
from services.embedded.container import main, required
from services.embedded.ports import HOST
from services.embedded.run_nats import publish


async def serve() -> None:
    """Create the certificates. Raises EmbeddedError."""
    names, folder, shared = required(
        "TOPOLOG_NATS_TLS_NAMES", "TOPOLOG_NATS_TLS_DIR", "TOPOLOG_NATS_CA_DIR"
    )
    made = ensure(Path(folder), [*names.split(","), "localhost", HOST])
    publish(str(made.ca), shared)
    print(f"NATS has a certificate for {names}")


if __name__ == "__main__":
    sys.exit(main(lambda: asyncio.wait_for(serve(), timeout=60)))
