"""Which judges the packed decoder covers, told from their configs before anything loads."""

from __future__ import annotations

import json
import shutil

import pytest
from later import Later

from pytest_imgedit.core.errors import UsageError
from pytest_imgedit.kinds.qwen_vl import PACKED, QwenVLJudge, read_config, unpackable

torch = Later("torch")
decoding = Later("pytest_imgedit.kinds.qwen_decoder.decoding")


def config(architecture="Qwen3VLForConditionalGeneration", **text):
    return {
        "architectures": [architecture],
        "vision_config": {},
        "image_token_id": 1,
        "text_config": text,
    }


@pytest.mark.parametrize("architecture", PACKED)
def test_full_attention_is_covered(architecture):
    assert (
        unpackable(
            config(architecture, layer_types=["full_attention"] * 2, use_sliding_window=False)
        )
        == ""
    )


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (
            config("Qwen3_5ForConditionalGeneration"),
            "Qwen3_5ForConditionalGeneration is not one of",
        ),
        (
            config(layer_types=["linear_attention", "full_attention"]),
            "it has layers of linear_attention",
        ),
        (config(layer_types=["sliding_attention"]), "it has layers of sliding_attention"),
        (config(use_sliding_window=True), "it attends through a sliding window"),
    ],
)
def test_other_attention_is_not_covered(found, reason):
    assert unpackable(found).startswith(reason)


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        ("{", "not valid JSON"),
        ("[]", "list, expected the config of a transformers model"),
        ("{}", "no 'architectures'"),
        (
            json.dumps({"architectures": ["LlamaForCausalLM"]}),
            "LlamaForCausalLM has no 'vision_config'",
        ),
    ],
)
def test_what_is_no_judge_is_refused_before_anything_starts(tmp_path, document, reason):
    (tmp_path / "config.json").write_text(document)
    with pytest.raises(UsageError, match=reason):
        read_config(tmp_path)


def test_a_judge_with_a_sliding_window_is_decoded_by_transformers(tiny, tmp_path, capsys):
    """A10: the window was swallowed, and other tokens came out."""
    from test_packed import ask

    folder = shutil.copytree(tiny("judge-qwen2.5-vl"), tmp_path / "judge")
    changed = json.loads((folder / "config.json").read_text())
    changed["text_config"] |= {
        "use_sliding_window": True,
        "sliding_window": 8,
        "max_window_layers": 0,
        "layer_types": ["sliding_attention"] * 2,
    }
    (folder / "config.json").write_text(json.dumps(changed))
    judge = QwenVLJudge(str(folder), device="cpu", max_new_tokens=4)
    assert isinstance(judge.decoder, decoding.PaddedDecoder)
    assert "decoded by transformers: it has layers of sliding_attention" in capsys.readouterr().err
    prompts = [judge.preprocess(question) for question in ask(2)]
    plain = QwenVLJudge(str(folder), device="cpu", max_new_tokens=4, attention="sdpa")
    found, expected = (one.decoder.decode(prompts, 4, keep_logits=True) for one in (judge, plain))
    assert found.tokens == expected.tokens
    assert all(
        torch.equal(one, other) for one, other in zip(found.logits, expected.logits, strict=True)
    )
