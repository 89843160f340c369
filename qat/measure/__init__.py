"""Measure memory and speed of training: float, QAT in each mode, and other frameworks, side by side."""
