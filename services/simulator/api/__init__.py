"""The simulated Kubernetes API server: an in-memory object store behind the Kubernetes HTTP API."""
