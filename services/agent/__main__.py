"""`python -m services.agent`. Must not import the service before `lean` ran."""

import sys

from shared.runtime import lean


def main() -> None:
    lean.leave_out_what_is_optional()
    from services.agent import service

    sys.exit(service.main())


if __name__ == "__main__":
    main()
