"""An integer program printed as C99, and what the compiled file computes."""

from qat.export.c.compile import COMPILERS, c_logits, find_compiler
from qat.export.c.source import CSource, c_source, write_c

__all__ = ["COMPILERS", "CSource", "c_logits", "c_source", "find_compiler", "write_c"]
