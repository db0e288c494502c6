"""Replay tooling: reads the log again, at any moment, and explains what happened and why."""
