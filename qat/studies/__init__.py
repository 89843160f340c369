"""What the scripts show beside training and comparison; each study is imported by its own script."""
