"""The `topolog` command: parse options, call a room, print. Decides nothing itself."""
