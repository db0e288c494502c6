"""`python -m services.console`."""

import sys

from services.console import service


def main() -> None:
    sys.exit(service.main())


if __name__ == "__main__":
    main()
