"""``python -m cdc``."""

from cdc.cli import main

if __name__ == "__main__":
    main()
