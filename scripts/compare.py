"""Compare setups of one small CNN: round's true gradient, straight-through, float, checkpointed.

python scripts/compare.py --bits 2 --epochs 4 --seeds 0 1 2 --setups ste float --out runs/two_bits
"""

import os
import sys

# Threads that sleep while they wait: on a machine with other work to do, spinning ones make a step ten times
# slower. It must be said before torch starts its threads.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

try:
    from qat.comparison.cli import main
except KeyboardInterrupt:  # the imports take seconds
    print("stopped before the run began", file=sys.stderr)
    sys.exit(130)

if __name__ == "__main__":
    main()
