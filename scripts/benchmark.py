"""Time quantizing beside float training, other frameworks, and the speed of the memory.

python scripts/benchmark.py --ops --rounds 50
python scripts/benchmark.py --profile --models resnet20      (where the time of a step goes)
python scripts/benchmark.py --startup --models resnet20      (what the first use costs)
"""

import os
import sys

# Threads that sleep while they wait: on a machine with other work to do, spinning ones make a step ten times
# slower. It must be said before torch starts its threads.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("KINETO_LOG_LEVEL", "6")  # the profiler's own remarks

try:
    from qat.studies.benchmark import main
except KeyboardInterrupt:  # the imports take seconds
    print("stopped before the benchmark began", file=sys.stderr)
    sys.exit(130)

if __name__ == "__main__":
    main()
