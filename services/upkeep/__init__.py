"""Administration of a log: skip an unreadable event, begin a timeline, export, import, archive,
redact.
"""
