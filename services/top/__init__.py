"""The live picture in the terminal: a fold of the log, drawn. Reads only the log, so that it can
show any Topolog.
"""
