"""What a run reuses of an earlier one: nothing whose inputs changed, everything else, and what it
says of that.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import zlib

import pytest

from pytest_imgedit.core.environments import Environment, key
from pytest_imgedit.report.read import as_baseline
from pytest_imgedit.store.baselines import write_baseline

STEPS = "--imgedit-set=editor.num_inference_steps=2"
JUDGE = "--imgedit-judge=fakes:Constant"


def linked(folder, model, unet):
    """Lay out a training checkpoint: links to the unchanged components, and to the trained one."""
    folder.mkdir(exist_ok=True)
    for part in model.iterdir():
        if part.name != "unet" and not (folder / part.name).exists():
            (folder / part.name).symlink_to(part)
    (folder / "unet").unlink(missing_ok=True)
    (folder / "unet").symlink_to(unet)
    return folder


def test_a_relinked_component_is_edited_with_again(bench, tiny, tmp_path):
    """A1: step 1000's edits were reported as step 2000's."""
    model, other = tiny("instruct-pix2pix"), tmp_path / "step2000"
    shutil.copytree(model / "unet", other)
    weights = other / "diffusion_pytorch_model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-8:] = b"\x00\x00\x80\x3f" * 2
    weights.write_bytes(data)
    options = (f"--imgedit-editor=diffusers:{tmp_path / 'ck'}", JUDGE, STEPS, "-k", "causal-0000")
    linked(tmp_path / "ck", model, model / "unet")
    bench.run(*options)
    first = bench.results
    linked(tmp_path / "ck", model, other)
    bench.run(*options)
    assert bench.timing["edits"] == 1
    assert bench.results["editor"]["fingerprint"] != first["editor"]["fingerprint"]


PACKAGE = {
    "__init__.py": "from .core import Ed\n",
    "core.py": "class Ed:\n    def __init__(self, *, device): ...\n    def edit(self, request):\n"
    "        return request.source.point(lambda value: 255 - value)\n",
}


@pytest.mark.full
def test_a_module_behind_a_package_is_edited_with_again(bench):
    """A4: only the package's __init__.py was hashed."""
    folder = bench.path / "mypkg"
    folder.mkdir()
    for name, text in PACKAGE.items():
        (folder / name).write_text(text)
    options = ("--imgedit-editor=mypkg:Ed", JUDGE, "--imgedit-limit=1")
    bench.run_with_workers(*options)
    bench.run_with_workers(*options)
    assert bench.timing["edits_cached"] == 5
    (folder / "core.py").write_text(PACKAGE["core.py"].replace("255 - value", "value // 2"))
    bench.run_with_workers(*options)
    assert bench.timing["edits"] == 5


#: Modules that import another by a computed name, when they are imported or when they edit first.
COMPUTED = {
    "at-import": "import importlib\nplugin = importlib.import_module('plug' + 'in')\n"
    "class Ed:\n    def __init__(self, *, device): ...\n"
    "    def edit(self, request): return plugin.change(request)\n",
    "at-the-first-edit": "import importlib\nclass Ed:\n    def __init__(self, *, device): ...\n"
    "    def edit(self, request): return importlib.import_module('plug' + 'in').change(request)\n",
}


@pytest.mark.parametrize("source", COMPUTED.values(), ids=COMPUTED)
@pytest.mark.full
def test_a_module_that_is_imported_by_a_computed_name_is_seen_too(bench, source):
    (bench.path / "dynamic.py").write_text(source)
    (bench.path / "plugin.py").write_text(
        "def change(request): return request.source.transpose(0)\n"
    )
    options = ("--imgedit-editor=dynamic:Ed", JUDGE, "--imgedit-limit=1")
    bench.run_with_workers(*options)
    bench.run_with_workers(*options)
    assert bench.timing["edits_cached"] == 5
    (bench.path / "plugin.py").write_text(
        "def change(request): return request.source.transpose(1)\n"
    )
    bench.run_with_workers(*options)
    assert bench.timing["edits"] == 5


def test_relabelled_pairs_of_a_folder_get_the_image_of_their_category(bench, tmp_path):
    """A6: the old category's image was kept."""
    from PIL import Image

    for category, colour in (("physics", "red"), ("social", "blue")):
        folder = tmp_path / "edits" / category
        folder.mkdir(parents=True)
        Image.linear_gradient("L").convert("RGB").point(
            lambda v, c=colour: v // (2 if c == "red" else 3)
        ).save(folder / "a.png")
    Image.linear_gradient("L").save(bench.path / "source.png")
    blobs = []
    for category in ("physics", "social", "physics"):
        pairs = [{"id": "a", "category": category, "instruction": "x", "image": "source.png"}]
        (bench.path / "pairs.json").write_text(json.dumps(pairs))
        bench.run(
            "--imgedit-suite=pairs.json", f"--imgedit-editor=folder:{tmp_path / 'edits'}", JUDGE
        )
        blobs.append(bench.items["a"]["seeds"][0]["edit"]["blob"])
    assert blobs[0] == blobs[2] != blobs[1]
    assert bench.timing["edits_cached"] == 1


def rewrite(path, change):
    """Rewrite the records of a journal with right checksums."""
    lines = []
    for line in path.read_bytes().splitlines():
        record = json.loads(line.rpartition(b"\t")[0])
        change(record)
        record["content"] = key(record["recipe"])
        record["key"] = key(record["recipe"], Environment(**record["environment"]))
        body = json.dumps(record, ensure_ascii=True, sort_keys=True)
        lines.append(f"{body}\t{zlib.crc32(body.encode()):08x}\n")
    path.write_text("".join(lines))


@pytest.mark.parametrize(("policy", "cached"), [("exact", 0), ("compatible", 0), ("any", 5)])
def test_edits_of_another_environment_are_reused_by_policy_and_named(bench, policy, cached):
    options = ("--imgedit-editor=identity", JUDGE, "--imgedit-limit=1")
    bench.run(*options)

    def age(record):
        record["environment"]["versions"]["pillow"] = "9.0.0"

    rewrite(bench.path / ".imgedit" / "edits.jsonl", age)
    result = bench.run(*options, f"--imgedit-reuse={policy}")
    assert bench.timing["edits_cached"] == cached
    assert bench.results["reuse"]["edits"] == cached
    named = [
        line
        for line in result.outlines
        if line.startswith("other environments: 5 edits (pillow 9.0.0 there, ")
    ]
    assert bool(named) == bool(cached)


def test_a_baseline_of_another_environment_is_compared_with_a_word(bench):
    options = ("--imgedit-editor=identity", JUDGE, "--imgedit-limit=1")
    bench.run(*options, "--imgedit-save=main", "--imgedit-set=gates.inconclusive=warn")
    folder = bench.path / "benchmarks" / "baselines"
    baseline = as_baseline(folder / "main.json")
    environments = {}
    for here in baseline.environments.values():
        there = here.model_copy(update={"versions": {**here.versions, "pillow": "9.0.0"}})
        environments[there.bare.digest] = there
    write_baseline(folder, baseline.model_copy(update={"environments": environments}))
    result = bench.run(*options, "--imgedit-compare=main")
    result.stdout.fnmatch_lines(["computed in other environments: edits: pillow 9.0.0 there, *"])
    bench.run(*options, "--imgedit-save=again")
    result = bench.run(*options, "--imgedit-compare=again")
    result.stdout.no_fnmatch_line("computed in other environments*")


@pytest.mark.full
def test_a_baseline_of_the_same_judge_under_another_path_is_compared_with(bench, tiny):
    """B1: a spec of another text was another judge."""
    (bench.path / "ja").symlink_to(tiny("judge-trained"))
    options = ("--imgedit-editor=identity", "--imgedit-limit=1", "-k", "physics")
    saved = bench.run(
        *options, f"--imgedit-judge=qwen-vl:{tiny('judge-trained')}", "--imgedit-save=main"
    )
    assert saved.ret == 0
    untried = "--imgedit-set=judge.controls=false"
    result = bench.run(*options, "--imgedit-judge=qwen-vl:./ja", "--imgedit-compare=main", untried)
    assert result.ret == 0
    assert bench.timing["verdicts_cached"] == 1


def test_a_reminder_counts_for_verdicts_that_needed_it_alone(bench):
    """B3: the number of re-asks was in every verdict's key."""
    options = ("--imgedit-editor=identity", JUDGE, "--imgedit-limit=1")
    bench.run(*options)
    bench.run(*options, "--imgedit-set=judge.reasks=0")
    assert bench.timing["verdicts_cached"] == 5


def explain(bench, *arguments):
    return bench.pytester.run(
        sys.executable, "-m", "pytest_imgedit.cli.main", "explain", *arguments
    )


@pytest.mark.full
def test_explain_says_all_that_decided(bench):
    bench.run("--imgedit-editor=identity", JUDGE, "--imgedit-limit=1")
    seed = bench.items["physics-0000"]["seeds"][0]
    for name, words in (("edit", "decided by the editor:"), ("verdict", "decided by the judge:")):
        key = seed[name]["key"] if name == "edit" else seed[name]["keys"]["aspects"]
        shown = explain(bench, key[:16])
        assert shown.ret == 0
        shown.stdout.fnmatch_lines([f"{name} {key}", "*", "computed on:", "  cpu*: *", "*", words])
        document = json.loads(str(explain(bench, key, "--json").stdout))
        assert document["recipe"]
    shown = explain(bench, seed["edit"]["blob"][:12])
    assert shown.ret == 0
    for reference, line in (
        ("abc", "imgedit: 'abc': expected at least 4 characters *"),
        ("zzzz", "*zzzz: no edit or verdict in *"),
    ):
        refused = explain(bench, reference)
        assert refused.ret == 4
        refused.stderr.fnmatch_lines([line])


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="needs Linux")
def test_results_name_the_environment_of_each_edit_and_verdict(bench):
    bench.run("--imgedit-editor=identity", JUDGE, "--imgedit-limit=1")
    environments = bench.results["environments"]
    for item in bench.items.values():
        (seed,) = item["seeds"]
        assert environments[seed["edit"]["environment"]]["edits"] == 5
        assert environments[seed["verdict"]["environment"]]["verdicts"] == 5
