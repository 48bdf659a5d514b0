"""A judge's compiled kernels are all made by the warm-up: nothing is compiled while questions
wait.
"""

import sys

import pytest
from later import Later
from test_packed import ask

from pytest_imgedit.kinds.qwen_vl import QwenVLJudge

torch = Later("torch")
fused = Later("pytest_imgedit.kinds.qwen_decoder.fused")

pytestmark = pytest.mark.everyday


@pytest.fixture
def traced(monkeypatch):
    """The compiler's own tracing and guards, without the kernels that it would make."""
    compiler = torch.compile

    def clear():
        torch._dynamo.reset()
        fused.compiling.cache_clear()
        fused._compiled.cache_clear()

    monkeypatch.setattr(
        "pytest_imgedit.kinds.qwen_decoder.fused.torch.compile",
        lambda function, *, dynamic, options: compiler(function, dynamic=dynamic, backend="eager"),
    )
    clear()
    yield lambda: torch._dynamo.utils.counters["stats"]["unique_graphs"]
    clear()


@pytest.mark.everyday_for("judge-qwen3-vl-moe")
@pytest.mark.parametrize("model", ["judge-qwen2.5-vl", "judge-qwen3-vl", "judge-qwen3-vl-moe"])
def test_no_question_has_anything_compiled(tiny, monkeypatch, traced, model):
    """It takes up to 10 CPU seconds: PyTorch's tracing of every kernel is the point."""
    judge = QwenVLJudge(str(tiny(model)), device="cpu", dtype="bfloat16", max_new_tokens=5)
    code = sys.modules[type(judge.model).__module__]
    for name in fused.ROTARY:
        monkeypatch.setattr(code, name, getattr(code, name))  # is undone with the test
    before = traced()
    widths = fused.Widths.of(judge.model.config)
    assert fused.compiling(type(judge.model), widths, "cpu").result()
    fused.fuse(judge.model)
    warmed = traced()
    # Two widths of a norm and two rotary embeddings; with experts, what surrounds their products.
    assert warmed - before == (7 if model.endswith("moe") else 4)
    experts = getattr(judge.model.model.language_model.config, "_experts_implementation", None)
    assert (experts == fused.EXPERTS) == model.endswith("moe")
    judge.decoder.tiles_alike, judge.decoder.rows, judge.decoder.bucket = True, 3, 256
    for count in (1, 4, 7):
        judge.answer(ask(count))
    assert traced() == warmed
