"""The event log: port, in-memory implementation, Postgres, cursor, snapshots, leases."""
