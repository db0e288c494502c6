"""The console: what the log says, in a browser. Reads only."""
