"""Folders of the hub's cache, of trainers and of the package datasets in the place of a model or of a
suite's data: the line says what each is, and what to give.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest
from checkpoint_files import pipeline, tensors

from pytest_imgedit.cli.main import main
from pytest_imgedit.config.settings import SuiteSettings
from pytest_imgedit.core.errors import UsageError
from pytest_imgedit.kinds.checkpoint_files import Checkpoint, Layout, loaded_files
from pytest_imgedit.kinds.pipeline_arguments import pipeline_class
from pytest_imgedit.suites.base import load_suite

HASH = "5c3f0e2d" * 5


def write(path: Path, document: object = "x") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document))
    return path


def entry(root: Path, name: str) -> Path:
    """An entry of the hub's cache with an older snapshot beside the one of `refs/main`."""
    folder = root / name
    for snapshot in (HASH, "0" * 40):
        (folder / "snapshots" / snapshot).mkdir(parents=True)
    (folder / "blobs").mkdir()
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text(HASH)
    return folder


def refusal(model: Path, layout: Layout = Layout.PIPELINE) -> str:
    """The line about a model; the editor, which asks for the pipeline's class first, has the
    same.
    """
    with pytest.raises(UsageError) as raised:
        Checkpoint(str(model), layout).component_bytes("auto")
    if layout is Layout.PIPELINE:
        with pytest.raises(UsageError) as of_editor:
            pipeline_class(str(model))
        assert str(of_editor.value) == str(raised.value)
    return str(raised.value)


def suite_refusal(spec: str) -> str:
    with pytest.raises(UsageError) as raised:
        load_suite(SuiteSettings(spec=spec))
    return str(raised.value)


@pytest.mark.parametrize("layout", Layout)
@pytest.mark.parametrize("part", [".", "snapshots", "blobs", "refs"])
@pytest.mark.parametrize("name", ["models--org--name", "models--gpt2"])
def test_an_entry_of_the_hub_s_cache_names_its_newest_snapshot(tmp_path, name, part, layout):
    folder = entry(tmp_path, name)
    repository = name.removeprefix("models--").replace("--", "/")
    assert f"the entry of {repository} in the hub's cache, expected its snapshot " in (
        line := refusal(folder / part, layout)
    )
    assert line.endswith(f"{folder}/snapshots/{HASH}")


def test_without_a_ref_the_snapshot_that_changed_last_is_the_newest(tmp_path):
    folder = entry(tmp_path, "models--a--b")
    (folder / "refs" / "main").unlink()
    write(folder / "snapshots" / ("0" * 40) / "x.json")
    assert refusal(folder).endswith("0" * 40)


def test_an_entry_without_a_snapshot_says_what_fetches_one(tmp_path):
    (tmp_path / "models--a--b" / "blobs").mkdir(parents=True)
    assert refusal(tmp_path / "models--a--b").endswith(
        "without a snapshot: hf download a/b fetches one"
    )
    (tmp_path / "datasets--a--b" / "blobs").mkdir(parents=True)
    line = suite_refusal(f"gedit:{tmp_path}/datasets--a--b")
    assert line.endswith("hf download a/b --repo-type dataset fetches one")


def test_the_hub_s_cache_itself_lists_what_it_has(tmp_path):
    entry(tmp_path, "models--a--b")
    entry(tmp_path, "datasets--c--d")
    assert "the cache of the hub with datasets--c--d, models--a--b, expected" in refusal(tmp_path)


def test_a_snapshot_and_a_folder_that_is_called_as_an_entry_are_taken(tmp_path):
    snapshot = entry(tmp_path, "models--a--b") / "snapshots" / HASH
    own = tmp_path / "models--x--y"
    for folder in (snapshot, own):
        pipeline(folder)
        assert Checkpoint(str(folder), Layout.PIPELINE).component_bytes("auto") == {"unet": 4}


@pytest.mark.parametrize(
    "name",
    ["model_index.json", "unet/diffusion_pytorch_model.safetensors", "unet/config.json"],
)
def test_a_dead_link_of_a_snapshot_is_one_and_says_what_fetches_it(tmp_path, name):
    snapshot = entry(tmp_path, "models--a--b") / "snapshots" / HASH
    path = pipeline(snapshot) / name
    path.unlink()
    path.symlink_to("../../../blobs/abc")
    checkpoint = Checkpoint(str(snapshot), Layout.PIPELINE)
    with pytest.raises(UsageError) as raised:
        checkpoint.component_bytes("auto"), loaded_files(snapshot, Layout.PIPELINE)
    line = str(raised.value)
    assert f"{path}: a dead link to ../../../blobs/abc, expected" in line
    assert line.endswith("hf download a/b fetches it")


def network(folder: Path, name: str = "UNet2DConditionModel") -> Path:
    write(folder / "config.json", {"_class_name": name})
    (folder / "diffusion_pytorch_model.safetensors").write_bytes(tensors(b"1234"))
    return folder


def test_a_component_of_a_pipeline_names_the_pipeline(tmp_path):
    folder = pipeline(tmp_path / "model")
    network(folder / "unet")
    line = refusal(folder / "unet")
    assert f"the component unet of a pipeline, expected the pipeline: {folder}" in line


@pytest.mark.parametrize("given", ["unet", "."])
def test_a_network_of_a_trainer_s_checkpoint_says_how_it_becomes_a_pipeline(tmp_path, given):
    state = tmp_path / "checkpoint-500"
    network(state / "unet")
    write(state / "optimizer.bin")
    line = refusal(state / given)
    commands = f"cp -rs BASE NEW && rm -r NEW/unet && cp -r {state}/unet NEW/unet"
    assert f"expected a whole pipeline: {commands}, where BASE is the absolute path" in line


def test_networks_alone_say_how_they_become_a_pipeline(tmp_path):
    step = tmp_path / "step 9"
    network(step / "unet")
    network(step / "unet_ema")
    line = refusal(step)
    assert "unet without model_index.json, expected a whole pipeline: cp -rs BASE NEW && rm" in line
    assert f"rm -r NEW/unet && cp -r '{step}/unet' NEW/unet, where BASE is" in line
    network(tmp_path / "checkpoint-9", "QwenImageTransformer2DModel")
    line = refusal(tmp_path / "checkpoint-9")
    assert "a QwenImageTransformer2DModel alone, expected a whole pipeline" in line
    assert f"rm -r NEW/transformer && cp -r {tmp_path}/checkpoint-9 NEW/transformer" in line


@pytest.mark.parametrize("name", ["random_states_0.pkl", "trainer_state.json"])
@pytest.mark.parametrize("layout", Layout)
def test_the_state_of_a_trainer_is_said_to_be_one(tmp_path, name, layout):
    write(tmp_path / "checkpoint-500" / name)
    line = refusal(tmp_path / "checkpoint-500", layout)
    assert "the state of a trainer without" in line
    assert "saved with save_pretrained" in line


#: What is done with what a command makes, for a judge; for a pipeline with safetensors, and with a
#: pickle.
LOADS = (
    "load_state_dict it into the model that was trained, and save_pretrained that",
    "editor.single_file names it, beside the pipeline that was trained",
    "safetensors.torch.save_file saves its tensors, and editor.single_file names that file, beside "
    "the pipeline that was trained",
)
LOAD = "LOAD"
DCP = "python -m torch.distributed.checkpoint.format_utils dcp_to_torch"
#: Files below the folder that is given, of which the first are shards; the command, in which ROOT
#: is that folder, for a pipeline and for a judge (`None`: the same).
SHARDS = {
    "deepspeed": (
        ["zero_to_fp32.py", "global_step9/mp_rank_00_model_states.pt"],
        "shards of DeepSpeed, expected what save_pretrained writes: python ROOT/zero_to_fp32.py ROOT "
        f"ROOT-merged --safe_serialization makes safetensors in ROOT-merged: {LOAD}",
        None,
    ),
    "accelerate": (
        ["pytorch_model_fsdp_0/__0_0.distcp", "optimizer_0/__0_0.distcp", "scheduler.bin"],
        "shards of FSDP as accelerate writes them in ROOT/pytorch_model_fsdp_0, expected what "
        "save_pretrained writes: accelerate merge-weights ROOT/pytorch_model_fsdp_0 "
        "ROOT/pytorch_model_fsdp_0-merged makes "
        f"ROOT/pytorch_model_fsdp_0-merged/model.safetensors: {LOAD}",
        None,
    ),
    "dcp": (
        ["__0_0.distcp", "__1_0.distcp", ".metadata"],
        "shards of torch.distributed.checkpoint, expected what save_pretrained writes: "
        f"{DCP} ROOT ROOT-merged.pt makes ROOT-merged.pt, a pickle: {LOAD}",
        None,
    ),
    "lightning": (
        ["epoch=0-step=3.ckpt/__0_0.distcp", "epoch=0-step=3.ckpt/meta.pt"],
        "shards of Lightning in ROOT/epoch=0-step=3.ckpt, expected what save_pretrained writes: "
        "python -m lightning.pytorch.utilities.consolidate_checkpoint ROOT/epoch=0-step=3.ckpt makes "
        f"ROOT/epoch=0-step=3.ckpt.consolidated, a pickle: {LOAD}",
        None,
    ),
    "verl": (
        ["global_step_100/actor/model_world_size_2_rank_0.pt", "latest_checkpointed_iteration.txt"],
        "shards of FSDP as verl-omni writes them in ROOT/global_step_100/actor, expected what "
        "save_pretrained writes: python -m verl_omni.model_merger merge --backend fsdp --local_dir "
        "ROOT/global_step_100/actor --target_dir ROOT/global_step_100/actor-merged --base_model BASE "
        "--trust-checkpoint makes the pipeline ROOT/global_step_100/actor-merged, where BASE is the "
        "one that was trained",
        "shards of FSDP as verl writes them in ROOT/global_step_100/actor, expected what "
        "save_pretrained writes: python -m verl.model_merger merge --backend fsdp --local_dir "
        "ROOT/global_step_100/actor --target_dir ROOT/global_step_100/actor-merged makes the model "
        "ROOT/global_step_100/actor-merged",
    ),
    "megatron of verl": (
        ["actor/dist_ckpt/__0_0.distcp", "actor/dist_ckpt/common.pt"],
        "shards of Megatron in ROOT/actor/dist_ckpt, expected what save_pretrained writes: "
        "python -m verl.model_merger merge --backend megatron --local_dir ROOT/actor --target_dir "
        "ROOT/actor-merged makes the model ROOT/actor-merged",
        None,
    ),
    "megatron": (
        ["iter_0000100/__0_0.distcp", "iter_0000100/common.pt", "iter_0000100/metadata.json"],
        "shards of Megatron in ROOT/iter_0000100, expected what save_pretrained writes: "
        f"{DCP} ROOT/iter_0000100 ROOT/iter_0000100-merged.pt makes ROOT/iter_0000100-merged.pt, a "
        "pickle with Megatron's names: the trainer's own exporter maps them to those of the network",
        "shards of Megatron in ROOT/iter_0000100, expected what save_pretrained writes: "
        "python -c 'from megatron.bridge import AutoBridge; "
        'AutoBridge.from_hf_pretrained("BASE").export_ckpt("ROOT/iter_0000100", '
        '"ROOT/iter_0000100-merged")\' makes the model ROOT/iter_0000100-merged, where BASE is the '
        "one that was trained",
    ),
}


@pytest.mark.parametrize("layout", Layout)
@pytest.mark.parametrize("name", SHARDS)
def test_shards_name_the_command_that_merges_them(tmp_path, name, layout):
    files, of_pipeline, of_judge = SHARDS[name]
    for file in files:
        write(tmp_path / "run" / file)
    said = of_pipeline if layout is Layout.PIPELINE else of_judge or of_pipeline
    of_judge_load, of_file, of_pickle = LOADS
    load = of_pickle if "a pickle: " in said else of_file
    said = said.replace(LOAD, load if layout is Layout.PIPELINE else of_judge_load)
    assert refusal(tmp_path / "run", layout).endswith(said.replace("ROOT", f"{tmp_path}/run"))


@pytest.mark.parametrize("layout", Layout)
def test_of_many_steps_the_last_one_is_named_from_the_folder_of_the_run(tmp_path, layout):
    for step in (500, 1000, 900):
        write(tmp_path / f"checkpoint-{step}" / "pytorch_model_fsdp_0" / "__0_0.distcp")
    shards = f"{tmp_path}/checkpoint-1000/pytorch_model_fsdp_0"
    assert f"accelerate merge-weights {shards} {shards}-merged" in refusal(tmp_path, layout)


def test_a_step_of_deepspeed_and_the_config_of_verl_name_the_folder_above(tmp_path):
    write(tmp_path / "a" / "zero_to_fp32.py")
    write(tmp_path / "a" / "global_step9" / "mp_rank_00_model_states.pt")
    line = refusal(tmp_path / "a" / "global_step9")
    assert f"python {tmp_path}/a/zero_to_fp32.py {tmp_path}/a {tmp_path}/a-merged" in line
    write(tmp_path / "actor" / "model_world_size_1_rank_0.pt")
    write(tmp_path / "actor" / "huggingface" / "config.json", {"model_type": "qwen3_vl"})
    line = refusal(tmp_path / "actor" / "huggingface", Layout.MODEL)
    assert f"--local_dir {tmp_path}/actor --target_dir {tmp_path}/actor-merged" in line


@pytest.mark.parametrize("name", ["__0_0.distcp", "model_world_size_1_rank_0.pt"])
def test_shards_in_the_folder_of_a_component_name_the_command(tmp_path, name):
    folder = pipeline(tmp_path / "model") / "unet"
    (folder / "diffusion_pytorch_model.safetensors").unlink()
    write(folder / "config.json", {"_class_name": "UNet2DConditionModel"})
    write(folder / name)
    with pytest.raises(UsageError) as raised:
        Checkpoint(str(folder.parent), Layout.PIPELINE).component_bytes("auto")
    assert f"{folder}: shards of" in str(raised.value)
    command = f"{DCP} {folder} " if name.endswith("distcp") else f"--local_dir {folder} "
    assert command in str(raised.value)


def test_paths_with_spaces_are_quoted_for_the_shell(tmp_path):
    write(tmp_path / "my run" / "__0_0.distcp")
    line = refusal(tmp_path / "my run")
    assert f"{DCP} '{tmp_path}/my run' '{tmp_path}/my run-merged.pt' makes" in line


def test_a_folder_without_end_is_looked_at_no_longer_than_need_be(tmp_path):
    for number in range(300):
        (tmp_path / f"folder-{number}" / "below").mkdir(parents=True)
    started = time.process_time()
    with pytest.raises(UsageError, match=r"model_index\.json"):
        Checkpoint(str(tmp_path), Layout.PIPELINE).component_bytes("auto")
    assert time.process_time() - started < 1


@pytest.mark.full
@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
@pytest.mark.parametrize("inside", ["pytorch_model_fsdp_0", "dcp"])
def test_the_command_for_shards_of_torch_makes_the_weights_of_them(tmp_path, inside):
    """Runs it, in a process of its own: that takes four seconds of CPU time."""
    pytest.importorskip("accelerate")
    import torch.distributed.checkpoint
    from safetensors.torch import load_file

    weights = {"a.weight": torch.randn(3, 2), "a.bias": torch.randn(3)}
    torch.distributed.checkpoint.save(
        {"model": weights}, checkpoint_id=tmp_path / inside, no_dist=True
    )
    command, _, made = (
        refusal(tmp_path).partition("save_pretrained writes: ")[2].partition(" makes ")
    )
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    subprocess.run(shlex.split(command), check=True, env={**os.environ, "PATH": path})
    made = made.partition(":")[0].removesuffix(", a pickle")
    merged = load_file(made) if made.endswith("safetensors") else torch.load(made)["model"]
    assert merged.keys() == weights.keys()
    assert all(torch.equal(merged[name], weights[name]) for name in weights)


def test_the_state_beside_a_whole_pipeline_names_it(tmp_path):
    folder = pipeline(tmp_path / "out")
    write(folder / "checkpoint-500" / "optimizer.bin")
    assert refusal(folder / "checkpoint-500").endswith(f"saved at its end: {folder}")


@pytest.mark.parametrize("name", ["pytorch_lora_weights.safetensors", "adapter_model.safetensors"])
def test_an_adapter_names_the_key_for_it(tmp_path, name):
    write(tmp_path / name)
    assert f"and editor.loras names {tmp_path}" in refusal(tmp_path)
    assert refusal(tmp_path, Layout.MODEL).endswith(f"and judge.adapter={tmp_path}")


def test_a_folder_of_checkpoints_names_them_the_last_first(tmp_path):
    for step in (500, 1000):
        pipeline(tmp_path / f"step-{step}")
    line = refusal(tmp_path)
    assert line.endswith(f"expected one of them: {tmp_path}/step-1000, {tmp_path}/step-500")


def test_a_pipeline_is_no_judge(tmp_path):
    line = refusal(pipeline(tmp_path / "model"), Layout.MODEL)
    assert "a diffusers pipeline, expected the folder of one model" in line


@pytest.mark.parametrize(
    "suite",
    ["gedit", "gedit-v2", "genarena", "imgedit", "kris", "omnicontext", "risebench", "re-edit"]
    + ["native"],
)
@pytest.mark.parametrize("part", [".", "snapshots"])
def test_a_suite_in_the_hub_s_cache_names_its_snapshot(tmp_path, suite, part):
    folder = entry(tmp_path, "datasets--a--b")
    spec = str(folder / part)
    line = suite_refusal(spec if suite == "native" else f"{suite}:{spec}")
    assert f"the entry of a/b in the hub's cache, expected its snapshot {folder}" in line


@pytest.mark.parametrize(
    "suite", ["gedit", "gedit-v2", "genarena", "omnicontext", "re-edit", "native"]
)
@pytest.mark.parametrize("kind", ["one", "dict", "cache"])
def test_a_data_set_in_arrow_says_what_makes_parquet_of_it(tmp_path, suite, kind):
    folder = tmp_path / "saved"
    inner = folder / "train" if kind == "dict" else folder
    write(inner / "data-00000-of-00001.arrow")
    write(inner / "dataset_info.json", {})
    if kind != "cache":
        write(inner / "state.json", {})
    if kind == "dict":
        write(folder / "dataset_dict.json", {"splits": ["train"]})
    line = suite_refusal(str(folder) if suite == "native" else f"{suite}:{folder}")
    load = {
        "one": f"load_from_disk('{folder}')",
        "dict": f"load_from_disk('{folder}')['train']",
        "cache": "load_dataset(NAME, split=SPLIT)",
    }[kind]
    assert f"expected parquet: {load}.to_parquet('data.parquet')" in line


def test_init_names_a_snapshot_and_what_makes_parquet(tmp_path, capsys):
    folder = entry(tmp_path, "datasets--a--b")
    saved = tmp_path / "saved"
    for name in ("data.arrow", "dataset_info.json", "state.json"):
        write(saved / name, {})
    for given, said in ((folder, f"snapshots/{HASH}"), (saved, "to_parquet('data.parquet')")):
        assert main(["init", str(given)]) == 4
        assert said in capsys.readouterr().err


def test_the_same_parquet_twice_names_both_files(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    from pytest_imgedit.suites.gedit import GROUPS

    rows = [
        {
            "key": f"k{number}",
            "task_type": group,
            "instruction": "x",
            "instruction_language": "en",
            "input_image": {"bytes": b"x", "path": "a.png"},
        }
        for number, group in enumerate(GROUPS)
    ]
    paths = [tmp_path / "data" / "a.parquet", tmp_path / "refs" / "convert" / "b.parquet"]
    for path in paths:
        path.parent.mkdir(parents=True)
        parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    line = suite_refusal(f"gedit:{tmp_path}")
    assert f"id 'k0' occurs twice, in {paths[0]}:1: row 1 and {paths[1]}:1: row 1" in line
    assert "if the files are copies, name the folder of one" in line
    paths[1].unlink()
    parquet.write_table(pyarrow.Table.from_pylist([*rows, rows[0]]), paths[0])
    assert suite_refusal(f"gedit:{tmp_path}").endswith(f"row {len(rows) + 1}, expected unique ids")
