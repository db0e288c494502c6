"""One file a revision; the file's number is its revision id, so that the newest can be told without importing any."""
