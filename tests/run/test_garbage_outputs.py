"""Editors and judges that return garbage: an error with a reason for that pair, a score for the
others.
"""

from __future__ import annotations

import json

import pytest
from later import Later

torch = Later("torch")
safetensors = Later("safetensors.torch")

LIMIT = ("--imgedit-judge=fakes:Constant", "--imgedit-limit=2")


OUTPUTS = {
    "infinite": "NaN or infinity in 16384 of 16384 values of the editor's output",
    "blank": "the editor returned a blank image, colour (9, 9, 9) all over",
    "transparent": "the editor returned a blank image, colour (255, 255, 255) all over",
    "tiny": "the editor returned an image of 1x1 pixels, expected sides of at least 8",
    "ribbon": "the editor returned an image of 1024x8 pixels, expected no side over 50 times the "
    "other",
    "array": "the editor returned ndarray, expected a PIL image",
    "none": "the editor returned NoneType, expected a PIL image",
}


@pytest.fixture(scope="module")
def found():
    """Items of one run, which the first test that needs it makes, by what was put in their way."""
    return {}


@pytest.mark.parametrize("what", OUTPUTS)
def test_degenerate_output_is_an_error_of_its_pair(bench, found, what):
    if what not in found:
        result = bench.run(
            "--imgedit-judge=fakes:Constant",
            "--imgedit-editor=fakes:Outputs",
            f"--imgedit-set=editor.whats={list(OUTPUTS)}",
            "-kphysics",
        )
        result.assert_outcomes(passed=10 - len(OUTPUTS), failed=len(OUTPUTS))
        assert bench.results["categories"]["physics"]["errors"] == len(OUTPUTS)
        found.update(zip(OUTPUTS, bench.results["items"], strict=False))
    assert found[what]["error"] == {
        "stage": "edit",
        "kind": "degenerate_output",
        "message": OUTPUTS[what],
        "reply": None,
    }


def test_nan_out_of_a_real_pipeline_is_an_error_and_no_black_image(bench, tiny, tmp_path):
    import shutil

    model = tmp_path / "broken"
    shutil.copytree(tiny("instruct-pix2pix"), model)
    path = model / "vae" / "diffusion_pytorch_model.safetensors"
    weights = safetensors.load_file(path)
    weights["decoder.conv_out.bias"][0] = torch.nan
    safetensors.save_file(weights, path, metadata={"format": "pt"})
    result = bench.run(
        f"--imgedit-editor=diffusers:{model}",
        "--imgedit-set=editor.num_inference_steps=1",
        "--imgedit-limit=1",
        "-kphysics",
    )
    result.assert_outcomes(failed=1)
    assert bench.error_kinds == {"physics-0000": "degenerate_output"}
    assert "NaN or infinity" in bench.items["physics-0000"]["error"]["message"]


def test_near_copies_are_flagged_and_counted(bench):
    result = bench.run("--imgedit-editor=identity", "--imgedit-limit=2")
    result.stdout.fnmatch_lines(
        ["imgedit: PASS: overall 0.00; 10 of 10 edits are near-copies of their source"]
    )
    assert all(item["seeds"][0]["edit"]["near_copy"] for item in bench.results["items"])
    for report in ("report.md", "report.html"):
        assert "10 of 10 edits are near-copies" in (bench.runs[-1] / report).read_text()
    bench.run("--imgedit-editor=oracle", "--imgedit-limit=2")
    assert not any(item["seeds"][0]["edit"]["near_copy"] for item in bench.results["items"])


def test_shifted_and_toned_sources_are_near_copies(bench):
    (bench.path / "lazy.py").write_text(
        "from PIL import ImageChops\n"
        "class Editor:\n"
        "    def __init__(self, *, device): pass\n"
        "    def edit(self, request):\n"
        "        return ImageChops.offset(request.source, 2, -1).point(lambda v: v * 0.9 + 10)\n"
    )
    result = bench.run("--imgedit-editor=lazy:Editor", "--imgedit-limit=2")
    result.stdout.fnmatch_lines(["*10 of 10 edits are near-copies of their source*"])
    edits = [item["seeds"][0]["edit"] for item in bench.results["items"]]
    assert all(0 < edit["change"] <= 3 for edit in edits)


def test_edits_that_equal_their_reference_are_leaks_and_counted(bench):
    result = bench.run("--imgedit-editor=oracle", "--imgedit-limit=2")
    line = "leaks: 10 of 10 edits equal the reference of the pair"
    result.stdout.fnmatch_lines([line])
    assert all(item["seeds"][0]["edit"]["leaked"] for item in bench.results["items"])
    for report in ("report.md", "report.html"):
        assert line in (bench.runs[-1] / report).read_text()
    again = bench.run("--imgedit-editor=oracle", "--imgedit-limit=2")
    again.stdout.fnmatch_lines([line])
    blend = bench.run("--imgedit-editor=blend", "--imgedit-limit=2")
    assert "leaks:" not in blend.stdout.str()
    assert not any(item["seeds"][0]["edit"]["leaked"] for item in bench.results["items"])


def test_edits_of_another_aspect_ratio_are_flagged_and_counted(bench):
    (bench.path / "crops.py").write_text(
        "class Editor:\n"
        "    def __init__(self, *, device): pass\n"
        "    def edit(self, request):\n"
        "        width, height = request.source.size\n"
        "        return request.source.crop((0, 0, width // (1 + (request.category == "
        "'physics')), height))\n"
    )
    result = bench.run("--imgedit-editor=crops:Editor", "--imgedit-limit=2")
    line = "reframed: 2 of 10 edits have another aspect ratio than the source (over 3%)"
    result.stdout.fnmatch_lines([line.replace("(", "[(]")])
    flagged = [name for name, item in bench.items.items() if item["seeds"][0]["edit"]["reframed"]]
    assert flagged == ["physics-0000", "physics-0001"]
    for report in ("report.md", "report.html"):
        assert "2 of 10 edits have another aspect ratio" in (bench.runs[-1] / report).read_text()


def test_editor_that_draws_on_its_source_makes_no_copy(bench):
    (bench.path / "draws.py").write_text(
        "from PIL import ImageDraw\n"
        "class Editor:\n"
        "    def __init__(self, *, device): pass\n"
        "    def edit(self, request):\n"
        "        ImageDraw.Draw(request.source).rectangle((5, 5, 60, 60), fill='red')\n"
        "        return request.source\n"
    )
    bench.run("--imgedit-editor=draws:Editor", "--imgedit-limit=1").assert_outcomes(passed=5)
    assert not any(item["seeds"][0]["edit"]["near_copy"] for item in bench.results["items"])


def test_endless_reply_is_an_error(bench):
    (bench.path / "long.py").write_text(
        "from pytest_imgedit import Answer\n"
        "class Judge:\n"
        "    def __init__(self, *, device): pass\n"
        "    def answer(self, questions): return [Answer('x' * 10**7) for _ in questions]\n"
    )
    bench.run("--imgedit-judge=long:Judge", "--imgedit-limit=1").assert_outcomes(failed=5)
    assert bench.items["physics-0000"]["error"]["message"] == (
        "a reply of 10000000 characters, expected at most 100000"
    )


def test_blank_as_a_control_is_edited_and_scored(bench):
    bench.run("--imgedit-editor=blank", "--imgedit-limit=1").assert_outcomes(passed=5)


GOOD = "instruction: 5\npreservation: 5\nrealism: 5"
REPLIES = {
    "empty": ("", "no line 'instruction'"),
    "refusal": ("I cannot rate images of people.", "no line 'instruction'"),
    "number-in-prose": ("3 people stand there, so 9/10", "no line 'instruction'"),
    "other-scale": ("Score: 85", "no line 'instruction'"),
    "bare-number": ("10", "no line 'instruction'"),
    "rambling": ("The image is nice. " * 400, "no line 'instruction'"),
    "eleven": (
        GOOD.replace("instruction: 5", "instruction: 11"),
        "'instruction' is '11', expected",
    ),
    "negative": (GOOD.replace("5", "-1"), "'instruction' is '-1'"),
    "nan": (GOOD.replace("5", "nan"), "'instruction' is 'nan'"),
    "range": (GOOD.replace("5", "8-9"), "'instruction' is '8-9'"),
    "full-width": (GOOD.replace("5", "５"), "'instruction' is '５'"),
    "of-hundred": (GOOD.replace("5", "9/100"), "'instruction' is '9/100'"),
    "twice": (f"{GOOD}\nrealism: 9", "'realism' stands there twice"),
    "cut-short": ("instruction: 5\npreservation: 5", "no line 'realism'"),
}


@pytest.mark.parametrize("name", REPLIES)
def test_judge_garbage_is_asked_again_and_never_becomes_a_number(bench, found, name):
    if name not in found:
        replies = [reply for reply, _ in REPLIES.values()]
        result = bench.run(
            "--imgedit-judge=fakes:Replies",
            f"--imgedit-set=judge.replies={json.dumps(replies)}",
            "-kphysics or social",
        )
        result.assert_outcomes(passed=20 - len(REPLIES), failed=len(REPLIES))
        assert bench.results["overall"]["micro"]["mean"] == 5.0
        found.update(zip(REPLIES, bench.results["items"], strict=False))
    reply, reason = REPLIES[name]
    assert (found[name]["status"], found[name]["score"]) == ("judge_error", None)
    assert found[name]["error"]["kind"] == "unreadable_reply"
    assert found[name]["error"]["message"].startswith(reason)
    assert found[name]["error"]["reply"] == reply


@pytest.mark.parametrize("score", ["11.0", "-0.5", "'nan'", "'inf'"])
def test_score_of_a_measuring_judge_out_of_range_is_an_error(bench, score):
    result = bench.run(*LIMIT, f"--imgedit-set=judge.score={score}", "-kphysics")
    result.assert_outcomes(failed=2)
    assert set(bench.error_kinds.values()) == {"bad_score"}
