"""The command line: a table of verbs, each in a file of its own."""

import os
import sys
from collections.abc import Sequence
from importlib import import_module

VERBS = {
    "train": "Train (fit), validate or test one network.",
    "compare": "Train one network in several setups and report how they compare.",
    "memory": "Measure what training a network keeps in memory.",
    "benchmark": "Time quantization beside float training and other frameworks.",
    "export": "Export a trained run as ONNX, npz or C, and prove that it computes the same.",
    "check_gradients": "Check every gradient of the package, or one of a user-defined function.",
    "tour": "Custom gradients, experiment by experiment: expected and measured.",
}


def main(argv: Sequence[str] | None = None) -> None:
    """Run one verb; `argv` starts with its name and is by default the process's own arguments.

    Raises:
        SystemExit: 2 for bad input, 130 when stopped with Ctrl-C.
    """
    verb, *arguments = list(sys.argv[1:] if argv is None else argv) or ["--help"]
    if verb in ("-h", "--help"):
        print("usage: qat VERB [OPTIONS]\n\nverbs (details: qat VERB --help):")
        print("\n".join(f"  {name:<16} {meaning}" for name, meaning in VERBS.items()))
        return
    # Waiting threads sleep: spinning ones make a step ten times slower on a machine with other work to do.
    # OpenMP reads this when torch is imported, which the import below does.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault(
        "KINETO_LOG_LEVEL", "6"
    )  # the profiler's own log lines, which would break up the tables
    if verb not in VERBS:
        from qat.names import unknown_name

        print(f"error: {unknown_name('verb', verb, VERBS)}", file=sys.stderr)
        sys.exit(2)
    try:
        module = import_module(f"qat.cli.{verb}")
    except KeyboardInterrupt:  # the imports take seconds
        print("stopped before the run began", file=sys.stderr)
        sys.exit(130)
    module.main(arguments)
