"""The `topolog` command: parses, calls a room, prints. Decides nothing itself."""
