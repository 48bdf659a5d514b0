"""Real pipelines and judges, tiny, through whole runs on real photographs."""

from __future__ import annotations

import pytest

STEPS = "--imgedit-set=editor.num_inference_steps=2"
SMALL = ("--imgedit-set=editor.height=64", "--imgedit-set=editor.width=64")


@pytest.mark.parametrize(
    ("pipeline", "options"),
    [
        pytest.param(
            "qwen-image-edit",
            [*SMALL, "--imgedit-limit=1"],
            id="QwenImageEdit",
            marks=pytest.mark.full,
        ),
        pytest.param(
            "qwen-image-edit-plus",
            [*SMALL, "--imgedit-limit=1"],
            id="QwenImageEditPlus",
            marks=pytest.mark.full,
        ),
        pytest.param(
            "flux-kontext",
            ["--imgedit-set=editor.guidance_scale=2.5", "--imgedit-limit=1"],
            id="FluxKontext",
            marks=pytest.mark.full,
        ),
        pytest.param(
            "instruct-pix2pix",
            ["--imgedit-set=editor.image_guidance_scale=1.2", "--imgedit-limit=1"],
            id="Pix2Pix",
        ),
    ],
)
@pytest.mark.full
def test_pipeline_edits_photographs_and_a_judge_reads_them(
    bench, tiny, photographs, pipeline, options
):
    """Costly: a real pipeline and a real judge load and run."""
    result = bench.run(
        f"--imgedit-suite={photographs}",
        f"--imgedit-editor=diffusers:{tiny(pipeline)}",
        f"--imgedit-judge=qwen-vl:{tiny('judge-trained')}",
        STEPS,
        *options,
    )
    assert result.ret == 0
    assert bench.timing["swaps"] == 1
    assert set(bench.results["categories"]) == {"causal", "logical"}
    for item in bench.results["items"]:
        assert item["aspects"] == {"instruction": 6, "preservation": 8, "realism": 7}
        assert item["score"] == pytest.approx((6 * 7) ** 0.5)


@pytest.mark.parametrize("judge", ["judge-qwen2.5-vl", "judge-qwen3-vl", "judge-qwen3-vl-moe"])
@pytest.mark.everyday_for("judge-qwen3-vl")
def test_random_judge_ends_in_judge_errors_with_its_replies(bench, tiny, judge):
    result = bench.run(
        f"--imgedit-judge=qwen-vl:{tiny(judge)}",
        "--imgedit-limit=1",
        "--imgedit-set=judge.max_new_tokens=8",
    )
    assert result.ret == 1
    assert {item["status"] for item in bench.results["items"]} == {"judge_error"}
    assert all(item["error"]["kind"] == "unreadable_reply" for item in bench.results["items"])
    assert all(item["error"]["reply"] for item in bench.results["items"])


def test_checkpoint_that_was_overwritten_in_place_is_edited_with_again(bench, tiny, tmp_path):
    import shutil

    model = shutil.copytree(tiny("instruct-pix2pix"), tmp_path / "model")
    options = (
        f"--imgedit-editor=diffusers:{model}",
        "--imgedit-judge=fakes:Constant",
        STEPS,
        "-k",
        "causal-0000",
    )
    bench.run(*options)
    first = bench.results
    weights = model / "unet" / "diffusion_pytorch_model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    bench.run(*options)
    assert bench.timing["edits"] == 1
    assert bench.results["editor"]["fingerprint"] != first["editor"]["fingerprint"]


@pytest.mark.parametrize(
    ("option", "line"),
    [
        (
            "--imgedit-set=editor.guidence=3",
            "ERROR: editor.guidence: no such argument is taken by diffusers:*",
        ),
        (
            "--imgedit-set=editor.prompt=x",
            "ERROR: editor.prompt: no such argument is taken by diffusers:*",
        ),
        (
            "--imgedit-set=editor.dtype=float8",
            "ERROR: editor.dtype: Input should be 'auto', *found 'float8'",
        ),
        (
            "--imgedit-set=editor.num_inference_steps=ten",
            "ERROR: editor.num_inference_steps: found 'ten', expected int",
        ),
    ],
)
def test_argument_that_a_pipeline_does_not_take_is_a_usage_error(bench, tiny, option, line):
    result = bench.run(
        f"--imgedit-editor=diffusers:{tiny('instruct-pix2pix')}", option, "--imgedit-limit=1"
    )
    assert result.ret == 4
    result.stderr.fnmatch_lines([line])
