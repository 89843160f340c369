"""Export a trained run as ONNX, npz or C, and compare it with what was trained on the whole test set.

python scripts/export.py runs/mnist_w4a4/version_0 --out model.onnx
python scripts/export.py runs/mnist_w4a4/version_0 --format c --out model.c
"""

import sys

from qat.cli import main

if __name__ == "__main__":
    main(["export", *sys.argv[1:]])
