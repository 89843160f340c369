"""Two processes: ranks agree on scales, and a checkpointed run is still the plain one."""

import os
from pathlib import Path

import torch
from torch import distributed, multiprocessing
from torch.nn.parallel import DistributedDataParallel

from qat import Quantization, checkpoint_blocks, quantize
from qat.models import SmallCNN


def _train(rank: int, folder: str) -> None:
    """Three steps on this rank's own data, plain and checkpointed; the states go to files."""
    torch.set_num_threads(1)
    distributed.init_process_group(
        "gloo", store=distributed.FileStore(f"{folder}/store", 2), rank=rank, world_size=2
    )
    for checkpointed in (False, True):
        torch.manual_seed(0)
        model = quantize(SmallCNN(width=4, dropout=0.3), Quantization(), torch.zeros(2, 1, 28, 28))
        if checkpointed:
            checkpoint_blocks(model, ["blocks.*"])
        parallel = DistributedDataParallel(model)
        optimizer = torch.optim.SGD(parallel.parameters(), lr=0.1)
        torch.manual_seed(rank)
        for step in range(3):
            optimizer.zero_grad()
            parallel(torch.rand(4, 1, 28, 28) * (rank + 1) * 3**step).square().mean().backward()
            optimizer.step()
        torch.save(model.state_dict(), f"{folder}/{checkpointed}-{rank}.pt")
    distributed.barrier()
    # Gloo's threads sometimes abort a process at its exit; the files hold all that is tested.
    os._exit(0)


def test_ranks_agree_and_checkpointed_equals_plain(tmp_path: Path) -> None:
    multiprocessing.spawn(_train, (str(tmp_path),), nprocs=2)
    states = {
        (checkpointed, rank): torch.load(tmp_path / f"{checkpointed}-{rank}.pt", weights_only=True)
        for checkpointed in (False, True)
        for rank in (0, 1)
    }
    plain = states[False, 0]
    for state in states.values():
        assert all(torch.equal(plain[key], value) for key, value in state.items() if "running" not in key)
    for rank in (0, 1):  # BatchNorm's own statistics are each rank's; checkpointing changes neither
        one, other = states[False, rank], states[True, rank]
        assert all(torch.equal(one[key], other[key]) for key in one)
