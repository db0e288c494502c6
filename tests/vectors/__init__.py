"""Vectors recorded from the real kubelet and scheduler plugin, and their runner."""
