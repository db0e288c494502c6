"""Hint providers of the Topology Manager over what a report shows, and admission by them under
every choice of a kubelet.
"""
