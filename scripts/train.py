"""Train (fit), validate or test a CNN with quantization.

python scripts/train.py fit --config configs/mnist_w4a4.yaml --model.quantization.weight_bits 2
python scripts/train.py fit --config configs/mnist_w4a4.yaml --ckpt_path runs/.../last.ckpt    (resumes)
python scripts/train.py test --config runs/.../config.yaml --ckpt_path runs/.../last.ckpt
"""

import sys

from qat.cli import main

if __name__ == "__main__":
    main(["train", *sys.argv[1:]])
