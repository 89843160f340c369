"""Layers that absorb their BatchNorm before the weight is quantized."""

import copy
import pickle
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from qat import Quantization, checkpoint_blocks, quantize
from qat.layers.deployable import DeployableConv2d, FoldedBatchNorm2d, FoldedSyncBatchNorm
from qat.models import MODELS, ResNet8, SmallCNN
from qat.quantizers import PowerOfTwo, Quantizer


def built(model: nn.Module, x: Tensor, **settings: Any) -> nn.Module:
    return quantize(model, Quantization(deployable=True, **settings), torch.zeros_like(x[:2]))


def pair(bias: bool, **settings: Any) -> Any:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, bias=bias), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(128, 2)
    )
    x = torch.rand(8, 3, 6, 6)
    model = built(model, x, **settings)
    model[1].weight.data.uniform_(-2, 2)
    model[1].bias.data.normal_()
    for _ in range(3):
        model(torch.rand(8, 3, 6, 6))
    return model


@pytest.mark.parametrize("bias", [False, True])
def test_training_normalises_as_batchnorm_does(bias: bool) -> None:
    model = pair(bias, weight_bits=8, first_last_bits=8)
    x = torch.rand(8, 3, 6, 6)
    model.eval()
    model[1].train()  # the scales stand still, the statistics do not
    norm = copy.deepcopy(model[1])
    conv = model[0]
    seen: list[Tensor] = []
    model[1].register_forward_hook(lambda module, inputs, output: seen.extend((inputs[0], output)))
    model(x)
    factor = norm.weight / (norm.running_var + norm.eps).sqrt()
    weight = conv.weight_quantizer(conv.weight * factor.reshape(-1, 1, 1, 1)) / factor.reshape(-1, 1, 1, 1)
    plain = nn.functional.conv2d(conv.input_quantizer(x), weight, conv.bias)
    assert (seen[0] - plain).abs().max() < 1e-5  # sums of 27 products of order 1 in float32
    assert torch.equal(seen[1], norm.train()(seen[0]))


@pytest.mark.parametrize("bias", [False, True])
def test_eval_is_one_convolution_on_grids(bias: bool) -> None:
    model = pair(bias).eval()
    conv = model[0]
    x = torch.rand(5, 3, 6, 6)
    seen: list[Tensor] = []
    model[1].register_forward_hook(lambda module, inputs, output: seen.append(output))
    model(x)
    unit = (
        conv.weight_quantizer.scale(conv.effective_weight).reshape(-1, 1, 1)
        * conv.input_quantizer.scale.value
    )
    assert torch.equal((seen[0] / unit).round() * unit, seen[0])  # bias included
    norm = nn.BatchNorm2d(8).eval()
    norm.load_state_dict(model[1].state_dict())
    bare = nn.functional.conv2d(conv.input_quantizer(x), conv.weight_quantizer(conv.effective_weight), None)
    offset = norm(torch.zeros(1, 8, 1, 1) if conv.bias is None else conv.bias.reshape(1, 8, 1, 1))
    assert (seen[0] - bare - offset).abs().max() <= unit.max() / 2 + 1e-6


def test_every_scale_is_a_power_of_two_and_the_keys_are_the_float_models() -> None:
    x = torch.rand(4, 3, 32, 32)
    model, plain = built(ResNet8(), x), ResNet8()
    model(x)
    quantizers = {name: m for name, m in model.named_modules() if isinstance(m, Quantizer)}
    for quantizer in quantizers.values():
        assert isinstance(quantizer.scale, PowerOfTwo)
        assert (torch.frexp(quantizer.scale.value)[0] == 0.5).all()
    own = {key for key in model.state_dict() if not key.startswith(tuple(f"{name}." for name in quantizers))}
    assert own == plain.state_dict().keys()
    assert quantizers["blocks.1.act2.quantizer"].grid.bits == 4
    assert quantizers["blocks.2.act2.quantizer"].grid.bits == 8  # it feeds the average alone
    assert quantizers["fc.input_quantizer"].grid.bits == 4


def test_an_override_by_name_decides_also_before_a_pool() -> None:
    model = built(
        SmallCNN(width=4), torch.rand(2, 1, 28, 28), layers={"blocks.3.act": {"activation_bits": 5}}
    )
    assert model.blocks[3].act.quantizer.grid.bits == 5


def test_weights_get_the_best_power_of_two() -> None:
    model = built(SmallCNN(width=4), torch.rand(2, 1, 28, 28), first_last_bits=8)
    conv = model.blocks[0].conv
    assert (
        conv.weight_quantizer.scale.value * 127 >= conv.effective_weight.abs().amax((1, 2, 3), True)
    ).all()


@pytest.mark.parametrize("name", MODELS)
def test_gradients_reach_every_parameter(name: str) -> None:
    shape = (3, 32, 32) if name.startswith("resnet") else (1, 28, 28)
    x = torch.rand(4, *shape)
    model = built(MODELS[name](), x)
    (model(x) ** 2).sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


def test_frozen_statistics_fold_and_gamma_still_learns() -> None:
    model = pair(bias=False)
    model[1].eval()
    before = model[1].running_mean.clone()
    model(torch.rand(8, 3, 6, 6)).sum().backward()
    assert torch.equal(model[1].running_mean, before)
    assert model[1].weight.grad.abs().sum() > 0
    assert model[1].bias.grad.abs().sum() > 0


def test_a_gamma_of_zero_gives_beta() -> None:
    model = pair(bias=False)
    model[1].weight.data[0] = 0
    x = torch.rand(8, 3, 6, 6)
    assert model(x).isfinite().all()
    model.eval()
    y = model[1](model[0](x))[:, 0]
    assert (y - model[1].bias[0]).abs().max() < 1e-5


def test_copies_read_their_own_batchnorm() -> None:
    model = pair(bias=False)
    twin = copy.deepcopy(model)
    assert isinstance(twin[0], DeployableConv2d)
    assert isinstance(twin[1], FoldedBatchNorm2d)
    assert twin[0].norm is twin[1]
    assert twin[1].fold is twin[0].fold
    assert twin[0].source is None


def test_checkpointed_equals_plain() -> None:
    torch.manual_seed(0)
    plain = SmallCNN(width=4)
    runs = []
    for patterns in ([], ["blocks.*"]):
        model = built(copy.deepcopy(plain), torch.rand(2, 1, 28, 28))
        checkpoint_blocks(model, patterns)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        for seed in range(4):
            images = torch.rand(4, 1, 28, 28, generator=torch.Generator().manual_seed(seed))
            optimizer.zero_grad()
            (model(images) ** 2).sum().backward()
            optimizer.step()
        runs.append(model.state_dict())
    assert all(torch.equal(value, runs[1][key]) for key, value in runs[0].items())


def test_a_block_without_its_batchnorm_is_not_checkpointed() -> None:
    model = built(SmallCNN(width=4), torch.rand(2, 1, 28, 28))
    with pytest.raises(
        ValueError, match=r"block 'blocks.0.conv' holds a layer that folds a BatchNorm which is"
    ):
        checkpoint_blocks(model, ["*.conv"])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"weight_bits": 16}, "^weight_bits must be 1 to 8 with deployable"),
        ({"first_last_bits": 32}, "^first_last_bits must be 1 to 8 with deployable"),
        ({"weight_scale": "dorefa"}, "^weight_scale must be observed or learned with deployable"),
        ({"asymmetric": True}, "^asymmetric must be false with deployable"),
        ({"deployable": "yes"}, "^deployable must be true, false or onnx"),
        ({"layers": {"fc": {"power_of_two": False}}}, r"^layers\['fc'\]: power_of_two must be true"),
        ({"layers": {"fc": {"weight_bits": 32}}}, r"^layers\['fc'\]: weight_bits must be 1 to 8"),
    ],
)
def test_what_does_not_go_with_it(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Quantization(**{"deployable": True} | settings)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (
            nn.Sequential(nn.BatchNorm2d(3), nn.Conv2d(3, 4, 3)),
            "^deployable needs every BatchNorm folded, but 0",
        ),
        (nn.Sequential(nn.ConvTranspose2d(3, 4, 3)), "^deployable knows .*, but 0 is a ConvTranspose2d"),
    ],
)
def test_layers_that_integers_do_not_reproduce(model: nn.Module, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        quantize(model, Quantization(deployable=True), torch.rand(2, 3, 6, 6))


def net(norm: Any = nn.BatchNorm2d) -> Any:
    torch.manual_seed(0)
    front = (nn.Conv2d(3, 8, 3, bias=False), norm(8), nn.ReLU())
    return nn.Sequential(*front, nn.Conv2d(8, 8, 3), norm(8), nn.ReLU(), nn.Flatten(), nn.Linear(32, 2))


def trained(model: Any) -> Any:
    model = built(model, torch.rand(8, 3, 6, 6)).train()
    for seed in range(3):
        model(torch.rand(8, 3, 6, 6, generator=torch.Generator().manual_seed(seed)))
    return model.eval()


X = torch.rand(8, 3, 6, 6)
SYNC = nn.SyncBatchNorm.convert_sync_batchnorm


@pytest.mark.parametrize(
    "change",
    [
        SYNC,
        lambda model: SYNC(SYNC(model)),
        lambda model: SYNC(copy.deepcopy(model)),
        lambda model: copy.deepcopy(SYNC(model)),
        lambda model: pickle.loads(pickle.dumps(SYNC(pickle.loads(pickle.dumps(model))))),
        lambda model: torch.optim.swa_utils.AveragedModel(model).module,
        lambda model: nn.Sequential(*SYNC(nn.Sequential(model, nn.Identity()))),
        lambda model: copy.deepcopy(nn.Sequential(*model[:3]).append(model[3:])),
    ],
)
def test_tools_that_replace_or_copy_modules_keep_the_outputs(change: Any) -> None:
    model = trained(net())
    expected = model(X)
    changed = change(model)
    assert torch.equal(changed(X), expected)
    # Its BatchNorm moves in training, and is the one that the eval mode then folds.
    state = copy.deepcopy(changed.state_dict())
    changed.train()(X + 1)
    after = changed.eval()(X)
    assert any(not torch.equal(x, state[key]) for key, x in changed.state_dict().items() if "running" in key)
    assert not torch.equal(after, expected)
    twin = trained(net())
    twin.train()(X + 1)
    assert torch.equal(twin.eval()(X), after)


def test_a_network_that_holds_syncbatchnorm() -> None:
    model = trained(net(nn.SyncBatchNorm))
    assert isinstance(model[1], FoldedSyncBatchNorm)
    assert torch.equal(model(X), trained(net())(X))
    plain = quantize(net(nn.SyncBatchNorm), Quantization(), X)
    assert isinstance(plain[1], nn.SyncBatchNorm)
    assert plain(X).isfinite().all()


def test_another_batchnorm_in_the_place_of_the_folded_one_is_folded() -> None:
    model = trained(net())
    new = nn.BatchNorm2d(8)
    new.load_state_dict(copy.deepcopy(model[1].state_dict()))
    new.bias.data += 0.5
    model[1] = new.eval()
    reference = trained(net())
    reference[1].bias.data += 0.5
    assert torch.equal(model(X), reference(X))


@pytest.mark.parametrize(
    "module", [nn.Identity(), nn.GroupNorm(2, 8), nn.BatchNorm2d(8, track_running_stats=False)]
)
def test_another_module_in_the_place_of_the_folded_batchnorm_is_refused(module: nn.Module) -> None:
    model = trained(net())
    model[1] = module
    with pytest.raises(
        ValueError, match=r"DeployableConv2d absorbs the BatchNorm '1' after it, but that is a"
    ):
        model(X)


def test_a_float_layer_in_the_place_of_the_one_that_folds_is_normalised() -> None:
    model = trained(net())
    model[0] = nn.Conv2d(3, 8, 3)
    norm = model[1]
    y = model[0](X)
    mean, variance = (x.reshape(-1, 1, 1) for x in (norm.running_mean, norm.running_var))
    expected = (y - mean) / (variance + norm.eps).sqrt()
    torch.testing.assert_close(
        model[1](y), expected * norm.weight.reshape(-1, 1, 1) + norm.bias.reshape(-1, 1, 1)
    )


def test_an_activation_that_was_replaced_leaves_the_bias_unrounded() -> None:
    model = trained(net())
    assert torch.equal(model[3].source.module.quantizer.scale.value, model[2].quantizer.scale.value)
    model[2] = nn.ReLU()
    assert model(X).isfinite().all()
    assert model[3].effective_bias is not None


@pytest.mark.parametrize("deployable", [True, False])
def test_a_state_of_other_weights_is_refused(deployable: bool) -> None:
    def net(deployable: bool) -> nn.Module:
        layers = nn.Sequential(
            nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(72, 3)
        )
        config = Quantization(deployable=True) if deployable else Quantization(power_of_two=True)
        return quantize(layers, config, torch.zeros(2, 1, 8, 8))

    with pytest.raises(ValueError, match="of a deployable layer"):
        net(deployable).load_state_dict(net(not deployable).state_dict())
