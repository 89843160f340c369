"""An integer program printed as C99, and what the compiled file computes."""
