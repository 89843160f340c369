"""The tour: custom gradients by hand, experiment by experiment, expected and measured."""
