"""Time quantizing beside float training, other frameworks, and the speed of the memory.

python scripts/benchmark.py --ops --rounds 50
python scripts/benchmark.py --profile --models resnet20      (where the time of a step goes)
python scripts/benchmark.py --startup --models resnet20      (what the first use costs)
"""

import sys

from qat.cli import main

if __name__ == "__main__":
    main(["benchmark", *sys.argv[1:]])
