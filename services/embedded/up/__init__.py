"""`topolog up`: everything on one machine. Options, children, status, display, and the run itself."""
