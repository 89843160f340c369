"""A trained model as an ONNX file, and the proof that the file computes the same."""
