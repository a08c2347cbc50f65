"""`python -m kueuelib` is `kueuelib`."""

from kueuelib.cli import main

if __name__ == "__main__":
    main()
