"""Compare setups of one small CNN: round's true gradient, straight-through, float, checkpointed.

python scripts/compare.py --bits 2 --epochs 4 --seeds 0 1 2 --setups ste float --out runs/two_bits
"""

import sys

from qat.cli import main

if __name__ == "__main__":
    main(["compare", *sys.argv[1:]])
