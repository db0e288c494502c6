"""Topolog's own choice of zones, CPU ids and amounts on nodes whose kubelet aligns nothing."""
