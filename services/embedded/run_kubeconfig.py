"""`python -m services.embedded.run_kubeconfig`: copy a kubeconfig that only its owner can read, for
the services.

Environment: TOPOLOG_KUBECONFIG_FROM and TOPOLOG_KUBECONFIG_TO, files; TOPOLOG_USER_ID, the only
user that can read the copy. A second run replaces the copy.
"""

import os
import sys
from pathlib import Path

from services.embedded.container import main, required
from services.embedded.errors import EmbeddedError
from services.embedded.files import write


async def serve() -> None:
    """Make the copy. Raises EmbeddedError."""
    source, target, user_id = required(
        "TOPOLOG_KUBECONFIG_FROM", "TOPOLOG_KUBECONFIG_TO", "TOPOLOG_USER_ID"
    )
    try:
        write(Path(target), Path(source).read_bytes(), 0o400)
        os.chown(target, int(user_id), -1)
    except (OSError, ValueError) as error:
        raise EmbeddedError(
            f"the kubeconfig {source} cannot be copied to {target} for the user {user_id}: {error}",
            "Set KUBECONFIG_FILE=$HOME/.kube/config, or another file",
        ) from error
    print(f"only the user {user_id} can read {target}")


if __name__ == "__main__":
    sys.exit(main(serve))
