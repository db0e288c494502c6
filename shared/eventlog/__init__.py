"""The event log: port, in-memory twin, Postgres, cursor, snapshots, leases."""
