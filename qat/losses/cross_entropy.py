"""Cross-entropy, computed by the stable log-sum-exp."""

from torch import Tensor

from qat.gradients import logsumexp
from qat.losses.huber import Reduction, in_float32, reduced


def cross_entropy(
    logits: Tensor, target: Tensor, label_smoothing: float = 0.0, reduction: Reduction = "mean"
) -> Tensor:
    """Negative log-likelihood of the target class, with smoothed labels.

    Forward, with s = label_smoothing: `logsumexp(x) - (1 - s) x[target] - s mean(x)`. Gradient of the logits:
    `g (softmax(x) - (1 - s) one_hot(target) - s / C)`. Under autocast all is computed in float32, as by
    torch's losses, and so is the result.

    Args:
        logits: `(N, C)`, finite; if s is 0, classes other than the target may be -inf.
        target: `(N,)`, int64 in `[0, C)`.
        label_smoothing: the share of the target that is spread over all classes, in [0, 1).
        reduction: `mean` over the batch, `sum`, or `none`, which gives `(N,)`.

    Raises:
        ValueError: the shapes do not fit, label_smoothing is out of range, or the reduction is unknown.

    Source: Szegedy et al. 2016, "Rethinking the Inception architecture", section 7, for the smoothing.
    """
    if logits.dim() != 2 or target.shape != logits.shape[:1]:
        shapes = f"{tuple(logits.shape)} and {tuple(target.shape)}"
        rule = f"cross_entropy needs logits (N, C) and target (N,), got {shapes}"
        raise ValueError(f"{rule}; one-hot targets: use huber_loss, or argmax them")
    if not 0 <= label_smoothing < 1:
        raise ValueError(f"label_smoothing must be in [0, 1), got {label_smoothing!r}; 0.1 is common")
    (logits,) = in_float32(logits)
    chosen = logits.gather(1, target[:, None]).squeeze(1)
    total = logsumexp(logits)
    loss = total - chosen
    if label_smoothing:  # a sum of two losses, in which -inf of the target's class gives inf and not NaN
        loss = (1 - label_smoothing) * loss + label_smoothing * (total - logits.mean(1))
    return reduced(loss, reduction)
