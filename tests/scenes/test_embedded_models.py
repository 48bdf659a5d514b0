"""The default run: the embedded editor and judge, real diffusion and a real VLM, without a GPU or a
network.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from PIL import Image

from pytest_imgedit import protocols

if TYPE_CHECKING:
    from conftest import Bench

SUITE = "--imgedit-suite=scenes:n=1,seed=5"


def _scores(bench: Bench) -> dict[str, float]:
    return {name: item["score"] for name, item in bench.items.items()}


pytestmark = pytest.mark.usefixtures("pytorch")


@pytest.fixture
def embedded(bench: Bench) -> Bench:
    """A benchmark folder without settings of its own, so that the defaults hold."""
    (bench.path / "pytest.ini").write_text("[pytest]\n")
    (bench.path / "imgedit.toml").unlink()
    return bench


@pytest.mark.full
def test_by_default_the_embedded_editor_edits_and_the_embedded_judge_scores(
    embedded: Bench,
) -> None:
    result = embedded.run(SUITE)
    assert result.ret == 0
    document = embedded.results
    assert (document["editor"]["spec"], document["judge"]["spec"]) == ("scenes", "scenes")
    assert document["editor"]["params"]["num_inference_steps"] == 4
    assert len(document["editor"]["fingerprint"]) == len(document["judge"]["fingerprint"]) == 64
    assert document["judge"]["protocol"] == "aspects"
    assert all(item["status"] == "scored" for item in embedded.items.values())
    assert document["overall"]["macro"]["mean"] > 4
    assert {worker["stage"] for worker in document["workers"]} == {"edit", "score"}
    for worker in document["workers"]:  # torch alone takes more than that
        assert 100 * 2**20 < worker["host_peak"] < 20 * 2**30
        assert worker["gpu_peak"] is None
    assert not any(item["seeds"][0]["edit"]["leaked"] for item in document["items"])
    seed = embedded.items["physics-0000"]["seeds"][0]
    assert seed["verdict"]["replies"]["aspects"].startswith("instruction: ")
    scores = _scores(embedded)

    one_by_one = embedded.run(
        SUITE, "--imgedit-stage=score", "--imgedit-fresh", "--imgedit-set=judge.batch_size=1"
    )
    assert one_by_one.ret == 0
    assert _scores(embedded) == scores

    distributed = embedded.run(SUITE, "--imgedit-fresh", "-n", "2")
    assert distributed.ret == 0
    assert _scores(embedded) == scores
    assert embedded.timing["edits_cached"] == embedded.timing["verdicts_cached"] == 0


@pytest.mark.full
def test_an_untouched_image_is_worth_nothing_to_the_embedded_judge(embedded: Bench) -> None:
    result = embedded.run(SUITE, "--imgedit-editor=identity", "--imgedit-fail-under=overall:4")
    assert result.ret == 1
    assert embedded.results["overall"]["macro"]["mean"] < 1.5


@pytest.mark.full
def test_fewer_steps_fail_against_a_baseline_by_name_of_the_category(embedded: Bench) -> None:
    social = ("--imgedit-suite=scenes:n=20", "-k", "social")
    gates = (
        "--imgedit-compare=main",
        "--imgedit-max-drop=overall:0",
        "--imgedit-max-drop=social:0",
    )
    assert embedded.run(*social, "--imgedit-save=main").ret == 0
    worse = embedded.run(*social, *gates, "--imgedit-set=editor.num_inference_steps=2")
    assert worse.ret == 1
    worse.stdout.fnmatch_lines(
        [
            "imgedit: FAIL: overall *, was * in main: -0.*",
            "  FAIL *social:0: *, was * in main: -0.*, p *",
            "a part: *",
        ]
    )
    same = embedded.run(*social, *gates)
    assert same.ret == 0
    same.stdout.fnmatch_lines(["  PASS * overall:*: no change *", "  PASS * social:*: no change *"])


def test_the_embedded_models_take_no_argument_and_only_known_keys(bench: Bench) -> None:
    bench.refuses("editor 'scenes' takes no argument, found 'x'", "--imgedit-editor=scenes:x")
    bench.refuses("judge 'scenes' takes no argument, found 'x'", "--imgedit-judge=scenes:x")
    bench.refuses(
        "judge.protocol: judge 'scenes' was taught the built-in protocol 'aspects' and no other, "
        "found 'seeds'",
        "--imgedit-judge=scenes",
        "--imgedit-set=judge.protocol=seeds",
    )
    (bench.path / "own.toml").write_text("[protocols.aspects]\nfile = 'mine.toml'\n")
    (bench.path / "mine.toml").write_text(
        (Path(protocols.__file__).parent / "aspects.toml").read_text()
    )
    bench.refuses(
        "judge.protocol: *, found 'aspects' of your own",
        "--imgedit-judge=scenes",
        "--imgedit-config=own.toml",
    )
    row = {"image": "a.png", "instruction": "x"}
    (bench.path / "photos.json").write_text(json.dumps([row]))
    bench.refuses(
        "judge 'scenes' knows drawn scenes only and cannot grade the suite 'photos.json': name a "
        "judge with --imgedit-judge, such as qwen-vl:MODEL or openai:URL#MODEL",
        "--imgedit-judge=scenes",
        "--imgedit-suite=photos.json",
    )
    for name, value, reason in (
        ("strength", "1", "no such argument is taken by scenes"),
        ("num_inference_steps", "0", "found 0, expected a count of at least 1"),
    ):
        bench.refuses(
            f"editor.{name}: {reason}",
            "--imgedit-editor=scenes",
            f"--imgedit-set=editor.{name}={value}",
        )


@pytest.fixture
def photographs(embedded: Bench) -> Bench:
    Image.new("RGB", (96, 96), "blue").save(embedded.path / "a.png")
    (embedded.path / "photos.csv").write_text("image,instruction\na.png,make it snow\n")
    return embedded


@pytest.mark.parametrize("stage", ["all", "edit"])
def test_the_embedded_editor_refuses_photographs_unless_it_is_named(
    photographs: Bench, stage: str
) -> None:
    photographs.refuses(
        "editor 'scenes', the default, knows drawn scenes only and paints drawings over the suite "
        "'photos.csv': name an editor with --imgedit-editor, such as diffusers:MODEL, or scenes "
        "for this one",
        "--imgedit-suite=photos.csv",
        "--imgedit-judge=none",
        f"--imgedit-stage={stage}",
    )


@pytest.mark.full
def test_the_embedded_editor_edits_photographs_if_it_is_named(photographs: Bench) -> None:
    """Costly: it loads the embedded editor twice."""
    (photographs.path / "named.toml").write_text('[editor]\nspec = "scenes"\n')
    for named in ("--imgedit-editor=scenes", "--imgedit-config=named.toml"):
        run = ("--imgedit-suite=photos.csv", "--imgedit-judge=none", named, "--imgedit-fresh")
        assert photographs.run(*run).ret == 0
        assert photographs.results["overall"]["micro"]["errors"] == 0
