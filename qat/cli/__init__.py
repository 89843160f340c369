"""The command line: a table of verbs. Each verb is a module of this package that loads when it is called."""

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from io import TextIOWrapper

VERBS = {
    "train": "Train (fit), validate or test a CNN with quantization.",
    "compare": "Train a network in several setups and write a report.",
    "memory": "Measure how much memory training a network needs.",
    "benchmark": "Compare the speed of QAT, float and other frameworks.",
    "export": "Export a trained run as ONNX, npz or C, and verify the file.",
    "check_gradients": "Check all gradients, or one user-defined function.",
    "tour": "Run experiments on custom gradients.",
}


def main(argv: Sequence[str] | None = None) -> None:
    """Run one verb; exit with 2 for bad input, 130 when stopped with Ctrl-C.

    `argv` is the name of the verb and its arguments; None: the arguments of the process.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # a terminal in another encoding than UTF-8 shows \u2501, say
            stream.reconfigure(errors="backslashreplace")
    verb, *arguments = list(sys.argv[1:] if argv is None else argv) or ["--help"]
    if verb in ("-h", "--help"):
        print("usage: qat VERB [OPTIONS]\n\nverbs (details: qat VERB --help):")
        print("\n".join(f"  {name:<16}{meaning}" for name, meaning in VERBS.items()))
        return
    if verb not in VERBS:
        from qat.names import unknown_name

        print(f"error: {unknown_name('verb', verb, VERBS)}", file=sys.stderr)
        sys.exit(2)
    for argument in arguments:
        if "&" in argument and "*" in argument:
            from qat.yaml_file import check_aliases

            try:
                check_aliases(argument.partition("=")[2] if argument.startswith("--") else argument)
            except ValueError as error:
                print(f"error: {argument[:40]}...: {error}", file=sys.stderr)
                sys.exit(2)
    # Let waiting threads sleep: spinning ones make a step ten times slower on a machine that has other work.
    # OpenMP reads this when torch is imported, which happens in the import below.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")  # else the profiler logs between the tables
    here = os.getcwd()  # noqa: PTH109 - pathlib would be a slow import
    if here not in sys.path:
        sys.path.append(here)  # user-defined networks and roundings are found here
    try:
        module = import_module(f"qat.cli.{verb}")
    except KeyboardInterrupt:  # the imports take seconds
        print("stopped before the run began", file=sys.stderr)
        sys.exit(130)
    module.main(arguments)
