"""A trained model in integers alone: lowered to a program, run by NumPy, written as npz."""
