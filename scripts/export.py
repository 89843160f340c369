"""Export a trained run as ONNX, npz or C, and compare it with what was trained on the whole test set.

python scripts/export.py runs/mnist_w4a4/version_0 --out model.onnx
python scripts/export.py runs/mnist_w4a4/version_0 --format c --out model.c
"""

import os
import sys

# Threads that sleep while they wait: on a machine with other work to do, spinning ones make a step ten times
# slower. It must be said before torch starts its threads.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

try:
    from qat.studies.export import main
except KeyboardInterrupt:  # the imports take seconds
    print("stopped before the run began", file=sys.stderr)
    sys.exit(130)

if __name__ == "__main__":
    main()
