"""Recorded answers of the real kubelet and the upstream plugin, and the runner that replays them
against our models.
"""
