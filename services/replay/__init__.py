"""The replay tooling: read the log again, at any moment, and say what happened and why."""
