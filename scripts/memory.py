"""Measure what training a network keeps in memory: float, QAT, packed, checkpointed, and both.

python scripts/memory.py --model resnet20 --batch 128 --bits 4
python scripts/memory.py --depth 8 16 32 64 128 --budget 2GB
"""

import sys

from qat.cli import main

if __name__ == "__main__":
    main(["memory", *sys.argv[1:]])
