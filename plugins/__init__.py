"""Plugins that a scheduler loads by name, only if they are configured. They may import services and
shared; nothing there imports them."""
