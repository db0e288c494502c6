"""`python -m services.exporter`."""

from services.exporter.command import main

main()
