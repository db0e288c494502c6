"""Upstream's known defects, one class each: first shown in compat mode, then shown absent by
default.

Every class names the mechanism in its docstring. `test_upstream_*` runs the reproduction of the
plugin, `test_default_*` the ledger or the default strategies on the same story.
"""
