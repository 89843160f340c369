"""What the runs share and in what they differ."""

from qat.report.settings import flat, is_mixed, same_and_different


def test_flat():
    tree = {"a": {"b": 1, "c": {}}, "d": None, "e": ["x", 2], "f": True, "g": []}
    assert flat(tree) == {"a.b": "1", "a.c": "none", "d": "none", "e": "x, 2", "f": "true", "g": "none"}


def test_same_and_different(results, grouped):
    same, different = same_and_different(grouped(results), "settings")
    assert same["data.batch_size"] == "128"
    assert different["model.quantization.rounding"] == {
        "zero": "zero",
        "ste": "ste",
        "float": "-",
        "checkpointed": "ste",
    }
    assert different["model.checkpoint"]["checkpointed"] == "blocks.*"
    assert "model.quantization" not in same | different


def test_swept_values_are_listed(bits_results, grouped):
    _, different = same_and_different(grouped(bits_results), "settings")
    assert different["model.quantization.weight_bits"]["ste"] == "8 / 4 / 3 / 2 / 1"


def test_seeds_with_other_settings_are_seen(results, grouped):
    results[4]["settings"]["model"]["learning_rate"] = 0.1
    assert [is_mixed(one) for one in grouped(results).every] == [False, True, False, False]
