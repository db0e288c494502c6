"""What every test may use."""

pytest_plugins = ["tests.fixtures.servers"]
