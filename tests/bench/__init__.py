"""Benches: `python -m tests.bench NAME`, one module each, JSON lines on standard output."""
