"""Bugs planted on purpose in a copy of the project, each with the test that must notice: `python -m
tests.mutations`.
"""
