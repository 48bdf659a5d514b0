"""Editors that several processes compute together: the same images, a part of the weights each, one
end for all.
"""

import json
import os
import signal
import subprocess
import sys

import numpy as np
import psutil
import pytest
from PIL import Image

from pytest_imgedit.config.settings import Settings
from pytest_imgedit.core.errors import SettingError
from pytest_imgedit.kinds.base import Site
from pytest_imgedit.kinds.diffusers_parameters import DiffusersParameters
from pytest_imgedit.kinds.identity import identify
from pytest_imgedit.kinds.registry import make_model

SIZES = {
    "qwen-image-edit": {
        "true_cfg_scale": 4.0,
        "height": 64,
        "width": 64,
        "scheduler": {"shift": 3.0},
    },
    "flux-kontext": {"scheduler": {"shift": 3.0}},
    "instruct-pix2pix": {"scheduler": {"class": "EulerDiscreteScheduler"}},
}
BOTH = """
import json, os, sys
import numpy as np
from PIL import Image
from pytest_imgedit.core.requests import EditRequest
from pytest_imgedit.kinds.diffusers import DiffusersEditor
from pytest_imgedit.kinds.sharded_editor import ShardedEditor
from pytest_imgedit.kinds.compute.seeding import seed_all

if __name__ == "__main__":
    folder, shard, call = sys.argv[1], json.loads(sys.argv[2]), json.loads(sys.argv[3])
    photo = Image.fromarray(np.random.default_rng(0).integers(0, 256, (48, 64, 3), dtype=np.uint8))
    request = EditRequest("a", "physics", "make it snow", photo, 5)
    plain = DiffusersEditor(folder, device="cpu", **call)
    shared = ShardedEditor(folder, device="cpu", ranks=2, shard=shard, **call)

    def edited(editor):
        seed_all(request.seed)  # as a worker does, and the other ranks do themselves
        return np.asarray(editor.edit(request), int)

    expected = edited(plain)
    of_base = {name: value for name, value in call.items() if name != "scheduler"}
    changed = int(abs(edited(DiffusersEditor(folder, device="cpu", **of_base)) - expected).max())

    def difference():
        return int(abs(edited(shared) - expected).max())

    differences = [difference()]
    name = "transformer" if hasattr(shared.pipeline, "transformer") else "unet"
    local = [getattr(one, "_local_tensor", one) for one in getattr(shared.pipeline, name).parameters()]
    held = [one.numel() for one in local]
    share = sum(held) / sum(parameter.numel() for parameter in getattr(plain.pipeline, name).parameters())
    broken = EditRequest("b", "physics", None, photo, 5)  # no instruction: all ranks refuse it
    try:
        shared.edit(broken)
    except Exception as error:
        failed = type(error).__name__
    differences.append(difference())  # and are in step again
    found = {"differences": differences, "changed": changed, "share": share, "failed": failed}
    print(json.dumps(found))
    sys.stdout.flush()
    os._exit(0)
"""


#: Lets diffusers, which counts an accelerator's devices before it parallelises, take the CPU for
#: one.
ACCELERATOR = """
import torch

torch.accelerator.device_count = lambda: 1
torch.accelerator.current_accelerator = lambda check_available=False: torch.device("cpu")
"""


def both(folder, shard, env=None, **call):
    """Edit with one process and with two; return the largest difference of a pixel, that of one
    process with the base's scheduler, and the share of rank 0.
    """
    command = [sys.executable, "-c", BOTH, str(folder), json.dumps(shard), json.dumps(call)]
    env = {**os.environ, "OMP_NUM_THREADS": "1", **(env or {})}
    done = subprocess.run(command, env=env, stdout=subprocess.PIPE, timeout=240, check=True)
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize(
    ("model", "shard", "share"),
    [
        pytest.param("qwen-image-edit", {}, 0.5, marks=pytest.mark.full),
        pytest.param(
            "flux-kontext", {"strategy": "full", "cpu_offload": True}, 0.5, marks=pytest.mark.full
        ),
        ("instruct-pix2pix", {"strategy": "grad_op", "text_encoder": "replicate"}, 1.0),
    ],
)
@pytest.mark.full_for("instruct-pix2pix-shard2-1.0")
def test_two_ranks_make_the_image_of_one(tiny, model, shard, share):
    """Costly: a group of two processes, which import torch and diffusers each."""
    found = both(tiny(model), shard, num_inference_steps=2, **SIZES.get(model, {}))
    assert max(found["differences"]) <= 1
    assert found["changed"] > 1, "by the scheduler"
    assert found["share"] == pytest.approx(share, abs=0.02)
    assert found["failed"] in ("TypeError", "ValueError", "AttributeError")


@pytest.mark.full
def test_modules_that_stay_in_float32_are_whole_on_every_rank(tiny):
    """A12: a rank that broadcast float32 met ranks that expected bfloat16, and the group died."""
    found = both(tiny("joyimage"), {}, num_inference_steps=2, dtype="bfloat16")
    assert max(found["differences"]) <= 4  # matrix products of parts round otherwise in bfloat16
    assert 0.4 < found["share"] < 0.9


@pytest.mark.full
def test_ranks_may_share_the_sequence(tiny, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    (tmp_path / "sitecustomize.py").write_text(ACCELERATOR)
    size = {"num_inference_steps": 2, **SIZES["qwen-image-edit"]}
    found = both(tiny("qwen-image-edit"), {"strategy": "context"}, **size)
    assert max(found["differences"]) <= 1 < found["changed"]
    assert found["share"] == 1


@pytest.mark.full
def test_blocks_may_compute_in_another_precision(tiny):
    found = both(tiny("instruct-pix2pix"), {"param_dtype": "bfloat16"}, num_inference_steps=2)
    assert 0 < max(found["differences"]) < 64


PAIRS = ("--imgedit-suite=scenes", "--imgedit-limit=2", "-k", "physics", "--imgedit-stage=edit")
GROUP = ("--imgedit-gpus=none", "--imgedit-gpus-per-worker=2")


def edits(bench):
    blobs = {name: item["seeds"][0]["edit"]["blob"] for name, item in bench.items.items()}
    folder = bench.path / ".imgedit" / "blobs"
    return {
        name: np.asarray(Image.open(folder / blob[:2] / f"{blob}.png"), int)
        for name, blob in blobs.items()
    }


@pytest.mark.full
def test_a_group_of_ranks_is_one_worker(bench, tiny, monkeypatch):
    (bench.path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(bench.path / "tmp"))
    editor = (
        f"--imgedit-editor=diffusers:{tiny('instruct-pix2pix')}",
        "--imgedit-set=editor.num_inference_steps=2",
    )
    bench.run_subprocess(*editor, *PAIRS)
    expected = edits(bench)
    bench.run_subprocess(*editor, *GROUP, *PAIRS)
    assert bench.timing["edits_cached"] == len(
        expected
    )  # where it is computed is no part of what it is
    bench.run_subprocess(*editor, *GROUP, *PAIRS, "--imgedit-fresh")
    found = edits(bench)
    assert all(abs(found[name] - expected[name]).max() <= 1 for name in expected)
    assert [worker["name"] for worker in bench.results["workers"]] == ["edit-0"]
    assert not list(bench.path.glob("tmp/imgedit-*"))


@pytest.mark.full
def test_one_rank_that_dies_ends_its_group_and_another_takes_the_place(bench, tiny):
    editor = (
        f"--imgedit-editor=diffusers:{tiny('instruct-pix2pix')}",
        "--imgedit-set=editor.num_inference_steps=60",
    )
    run = bench.start(*editor, *GROUP, *PAIRS)
    bench.wait_for(lambda: bench.stored_edits() == 1)
    (rank,) = [
        child
        for child in bench.children(run)
        if "sharded_editor import follow" in " ".join(child.cmdline())
    ]
    others = bench.children(run)
    rank.send_signal(signal.SIGKILL)
    run.communicate(timeout=200)
    assert bench.log_says("rank 1 ended with status -9, and its group with it")
    assert not bench.error_kinds
    assert not [one for one in others if one.is_running() and one.status() != psutil.STATUS_ZOMBIE]


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (
            ["--imgedit-set=editor.shard.strategy=full"],
            "editor.shard: nothing to share, expected *",
        ),
        (
            ["--imgedit-gpus-per-worker=2", "--imgedit-set=editor.shard=full"],
            "editor.shard: expected a table, found 'full'",
        ),
        (
            [
                "--imgedit-gpus-per-worker=2",
                "--imgedit-set=editor.shard.strategy=none",
                "--imgedit-set=editor.shard.param_dtype=float16",
            ],
            "editor.shard.param_dtype: it does nothing with the strategy 'none'",
        ),
        (
            ["--imgedit-gpus-per-worker=2", "--imgedit-set=editor.shard.strategy=half"],
            "editor.shard.strategy: *",
        ),
        (
            ["--imgedit-gpus-per-worker=2", "--imgedit-set=editor.shard.parts=2"],
            "editor.shard.parts: no such key, expected one of strategy, cpu_offload, *",
        ),
        (
            ["--imgedit-gpus-per-worker=2", "--imgedit-set=editor.offload=group"],
            "editor.offload: *",
        ),
        (
            ["--imgedit-gpus-per-worker=2", "--imgedit-set=editor.quantize=fp8"],
            "editor.quantize: not with a sharded *",
        ),
        (
            ["--imgedit-gpus-per-worker=2", "--imgedit-set=editor.shard.strategy=context"],
            "*'context' needs GPUs",
        ),
    ],
)
def test_what_cannot_be_shared_is_said_before_anything_starts(bench, options, line):
    bench.refuses(line, "--imgedit-editor=scenes", "--imgedit-judge=scenes", *options)


def test_of_two_wrong_keys_the_first_is_said_with_what_it_takes():
    with pytest.raises(SettingError) as caught:
        DiffusersParameters.check({"shard": {"strategy": "half", "cpu_offload": "yes"}})
    assert caught.value.key == "shard.strategy"
    assert str(caught.value) == (
        "Input should be 'full', 'grad_op', 'context' or 'none', found 'half'"
    )


def test_only_what_changes_images_makes_other_edits(tiny, tmp_path):
    cache, spec = tmp_path / "cache.json", f"diffusers:{tiny('instruct-pix2pix')}"

    def shared(**shard):
        return identify(make_model("editor", spec, {"shard": shard}, gpus=2), cache)

    plain = identify(make_model("editor", spec, {}), cache)
    assert shared(strategy="grad_op", cpu_offload=True) == plain
    assert plain not in [shared(param_dtype="bfloat16"), shared(strategy="context")]
    make_model("editor", spec, {"shard": {"cpu_offload": True}}, gpus=2).check(Site())
    assert Settings.model_validate({"editor": {"shard": {"strategy": "full"}}}).editor.params[
        "shard"
    ]
