"""`python -m services.exporter`."""

import os

os.environ.setdefault("GRPC_VERBOSITY", "ERROR")  # read by grpc when it is imported; its lower levels name every socket

import sys

from services.exporter.service import main

sys.exit(main(sys.argv[1:], dict(os.environ)))
