"""Alembic migrations of the event log. Run by `shared.eventlog.migrate`, or by hand with the
alembic command.
"""
