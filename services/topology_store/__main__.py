"""`python -m services.topology_store`."""

import sys

from services.topology_store.service import main

sys.exit(main())
