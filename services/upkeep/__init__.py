"""What an operator does to a log: skip a fact that cannot be read, begin a timeline, look after its
life. The log, not pods.
"""
