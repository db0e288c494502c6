"""Kubernetes: the port, the client, NodeResourceTopology objects."""
