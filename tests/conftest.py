"""One thread for all tests: their tensors are small, and waiting threads cost more than they help."""

import torch

torch.set_num_threads(1)
