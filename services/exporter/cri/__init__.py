"""What runs on a node as the container runtime tells it (CRI v1): for kubelets whose podresources
socket cannot be had.

The wire contract (`cri.proto` and what protoc makes of it), what a runtime's free-form words mean
(`info`), which resource a device is of (`devices`), what is kept back (`reserve`), and the source
itself (`source`).
"""
