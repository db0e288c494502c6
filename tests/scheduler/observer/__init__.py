"""From the Kubernetes API to events: what is observed, and what becomes an event."""
