"""What the runs share and in what they differ."""

from qat.report.settings import flat, same_and_different, settings_reading


def test_flat():
    tree = {"a": {"b": 1, "c": {}}, "d": None, "e": ["x", 2], "f": True, "g": []}
    assert flat(tree) == {"a.b": "1", "a.c": "none", "d": "none", "e": "x, 2", "f": "true", "g": "none"}


def test_same_and_different(results):
    same, different = same_and_different(results, "settings")
    assert same["batch_size"] == "128"
    assert different["quantization.rounding"] == {
        "zero": "zero",
        "ste": "ste",
        "float": "-",
        "checkpointed": "ste",
    }
    assert different["checkpoint"]["checkpointed"] == "blocks.*"
    assert "quantization" not in same | different


def test_reading(results):
    assert settings_reading(results) == (
        "The setups differ in `quantization` and `checkpoint` alone; seeds 0, 1 and 2 each; one set of "
        "versions for all runs."
    )
    assert settings_reading(results[:6]).startswith("The setups differ in `quantization.rounding` alone;")
    assert settings_reading(results[:1]) == "Seed 0; one set of versions for all runs."


def test_reading_warns_of_unlike_runs(results):
    results[4]["settings"]["learning_rate"] = 0.1
    results[5]["versions"] = results[5]["versions"] | {"torch": "2.0"}
    text = settings_reading(results[:5] + results[5:6])
    assert "WARNING: the seeds of `ste` were trained with different settings" in text
    assert "`learning_rate`" in text
    assert text.endswith("versions differ between runs: `torch`.")


def test_reading_of_unlike_seeds(results):
    assert "the setups had unlike seeds (`zero` seeds 0, 1 and 2; `ste` seed 0)" in settings_reading(
        results[:4]
    )
