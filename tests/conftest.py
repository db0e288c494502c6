"""What every test may use, and in which order workers take files."""

from pathlib import Path

import pytest

from tests.fixtures import examples

pytest_plugins = ["tests.fixtures.servers", "tests.fixtures.branches", "tests.fixtures.workers"]

examples.register()

# Folders whose files take longest. Begun last, one of them would keep one worker busy while the others have ended.
LONG = ("road", "simulation", "mutations", "embedded", "eventlog")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that take long first; otherwise the order stays."""
    here = Path(__file__).parent
    items.sort(key=lambda item: item.path.relative_to(here).parts[0] not in LONG)
