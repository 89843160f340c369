"""The memory study: what training a network keeps, mode by mode, counted and measured."""
