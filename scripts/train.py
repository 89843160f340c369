"""Trains (fit), validates or tests one network.

python scripts/train.py fit --config configs/mnist_w4a4.yaml --model.quantization.weight_bits 2
python scripts/train.py fit --config configs/mnist_w4a4.yaml --ckpt_path runs/.../last.ckpt    (resumes)
python scripts/train.py test --config runs/.../config.yaml --ckpt_path runs/.../last.ckpt
"""

import os
import sys

# Threads that sleep while they wait: on a machine with other work to do, spinning ones make a step ten times
# slower. It must be said before torch starts its threads.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

try:
    from qat.training.cli import main
except KeyboardInterrupt:  # the imports take seconds
    print("stopped before the run began", file=sys.stderr)
    sys.exit(130)

if __name__ == "__main__":
    main()
