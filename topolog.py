"""`python -m topolog`: the `topolog` command where no script is on the PATH."""

from services.cli.main import main

if __name__ == "__main__":
    main()
