"""Fixtures for every test."""

from tests.fixtures import examples

pytest_plugins = ["tests.fixtures.servers", "tests.fixtures.branches", "tests.fixtures.workers"]

examples.register()
