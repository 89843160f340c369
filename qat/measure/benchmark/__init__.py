"""The benchmark: what quantizing costs, beside float training, other frameworks and the memory itself."""
