"""`python -m services.exporter`."""

from services.exporter import lean

lean.leave_out_what_is_optional()

import os  # noqa: E402
import sys  # noqa: E402

from services.exporter.service import main  # noqa: E402

sys.exit(main(sys.argv[1:], dict(os.environ)))
