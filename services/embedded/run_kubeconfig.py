"""`python -m services.embedded.run_kubeconfig`: copy a kubeconfig, which its owner alone may read,
for the services, and end.

Environment: TOPOLOG_KUBECONFIG_FROM and TOPOLOG_KUBECONFIG_TO, files; TOPOLOG_USER_ID, who alone
may read the copy. Run again, the copy is replaced.
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
            "Name a file by KUBECONFIG_FILE=$HOME/.kube/config",
        ) from error
    print(f"{target} may be read by the user {user_id} alone")


if __name__ == "__main__":
    sys.exit(main(serve))
