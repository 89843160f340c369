"""A trained model as an ONNX file, and the proof that it computes the same."""
