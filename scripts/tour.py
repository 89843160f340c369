"""Gradients by hand, experiment by experiment: what was expected, and what is measured now.

python scripts/tour.py
python scripts/tour.py --html tour.html      (the same as one page, with the graphs)
"""

import sys

from qat.cli import main

if __name__ == "__main__":
    main(["tour", *sys.argv[1:]])
