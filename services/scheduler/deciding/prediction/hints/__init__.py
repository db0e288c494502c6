"""Topology hints from what a report tells of zones: one provider a file, all behind one protocol; the merge is the kubelet's.

Adding a provider is one file here and one line in `registry`. Providers must not know pods, nodes or policies.
"""
