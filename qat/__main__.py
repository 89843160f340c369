"""`python -m qat VERB ...` does the same as the command `qat VERB ...`."""

from qat.cli import main

if __name__ == "__main__":
    main()
