"""The run of `topolog up`: options, children, display."""
