"""The live picture in the terminal: a fold of the log, drawn. Reads the log and nothing else, so it
shows any Topolog.
"""
