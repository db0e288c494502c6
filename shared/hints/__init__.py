"""Hint providers of the Topology Manager over reports, and admission by them in every state that a
kubelet may be in."""
