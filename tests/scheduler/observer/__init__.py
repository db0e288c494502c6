"""What the Kubernetes API shows, and what of it becomes a fact."""
