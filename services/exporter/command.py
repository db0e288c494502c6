"""Entry point of `topolog-exporter`. Must not import a service before `lean` ran."""

import os
import sys

from shared.runtime import lean


def main() -> None:
    """Run with the flags and environment of this process, then exit."""
    lean.leave_out_what_is_optional()
    from services.exporter import service

    sys.exit(service.main(sys.argv[1:], dict(os.environ)))
