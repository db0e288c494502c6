"""The wire contract of the kubelet's podresources API (v1): the proto file and what protoc makes of
it, nothing else.

One process may hold only one proto of package `v1`, hence one place for client and simulated
server.
"""
