"""`python -m services.binder`."""

import sys

from services.binder.service import main

sys.exit(main())
