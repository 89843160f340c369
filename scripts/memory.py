"""Measure what training a network keeps in memory: float, QAT, packed, checkpointed, and both.

python scripts/memory.py --model resnet20 --batch 128 --bits 4
python scripts/memory.py --depth 8 16 32 64 128 --budget 2GB
"""

import os
import sys

# Threads that sleep while they wait: on a machine with other work to do, spinning ones make a step ten times
# slower. It must be said before torch starts its threads.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

try:
    from qat.studies.memory.cli import main
except KeyboardInterrupt:  # the imports take seconds
    print("stopped before the run began", file=sys.stderr)
    sys.exit(130)

if __name__ == "__main__":
    main()
