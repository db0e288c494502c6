"""What every test may use; how properties are searched.

`make test` draws the same examples each time, so that it says the same of the same code; a wider, random search is
HYPOTHESIS_PROFILE=wide make test.
"""

import os

from hypothesis import settings

pytest_plugins = ["tests.fixtures.servers", "tests.fixtures.coverage_scope"]

settings.register_profile("steady", derandomize=True, deadline=None)
settings.register_profile("wide", deadline=None, max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "steady"))
