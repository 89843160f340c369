"""`python -m qat VERB ...`: the same as the command `qat`."""

from qat.cli import main

main()
