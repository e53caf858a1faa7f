"""`python -m softki`: the command line."""

from softki.cli import main

if __name__ == "__main__":
    main()
