"""Telemetry: every name declared once, instruments, trace propagation, logs, and how a process sets
them up.
"""
