"""Experiments on custom gradients: what is expected, and what is measured now.

python scripts/tour.py
python scripts/tour.py --html tour.html      (also write one page with the graphs)
"""

import sys

from qat.cli import main

if __name__ == "__main__":
    main(["tour", *sys.argv[1:]])
