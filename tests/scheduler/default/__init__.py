"""The default mode (`cache: ledger`) through the scheduler's core: events in, proposals out, on a
log in memory.

What `tests/scheduler/defects` shows of upstream's defects in compat mode, and of their absence in
the fold, is shown here at the place where a pod would be sent to a node: by what is reserved,
refused, woken and marked.
"""
