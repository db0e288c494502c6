"""Tests of the binder."""
