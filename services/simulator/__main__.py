"""`python -m services.simulator`: a simulated cluster with an API server, kubelets and a
workload.
"""

import os

os.environ.setdefault(
    "GRPC_VERBOSITY", "ERROR"
)  # read by grpc when it is imported; its lower levels name every socket

import sys

from services.simulator.options import OptionsError, parse
from services.simulator.simulation import run


def main() -> int:
    """Run until stopped. Return 0 after a signal, 2 for wrong options, 1 if the cluster
    cannot run.
    """
    try:
        options = parse(sys.argv[1:])
    except OptionsError as error:
        print(f"topolog-simulator cannot start:\n{error}", file=sys.stderr)
        return 2
    try:
        run(options)
    except (OSError, ValueError) as error:
        print(f"topolog-simulator: {error}", file=sys.stderr)
        return 1
    return 0


sys.exit(main())
