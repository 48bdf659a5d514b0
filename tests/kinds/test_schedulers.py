"""`editor.scheduler`: laid over the base's configuration, part of the key where it changes it,
refused before weights load where it cannot be used, and asked for by adapters.
"""

from __future__ import annotations

import json
import math
import re
import shutil
import tomllib
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
from later import Later
from PIL import Image

from pytest_imgedit.cli.doctor import examine
from pytest_imgedit.core.errors import SettingError, SetupError
from pytest_imgedit.core.requests import EditRequest
from pytest_imgedit.kinds import scheduler_keys, scheduler_remarks, schedulers
from pytest_imgedit.kinds.base import Site
from pytest_imgedit.kinds.diffusers import DiffusersEditor
from pytest_imgedit.kinds.diffusers_parameters import DiffusersParameters
from pytest_imgedit.kinds.identity import identify
from pytest_imgedit.kinds.registry import make_model
from pytest_imgedit.kinds.user_code import source_file

torch = Later("torch")
safetensors = Later("safetensors.numpy")
diffusers = Later("diffusers")
fsdp = Later("pytest_imgedit.kinds.compute.fsdp")
seeding = Later("pytest_imgedit.kinds.compute.seeding")
scheduling = Later("pytest_imgedit.kinds.compute.scheduling")

PHOTO = Image.linear_gradient("L").convert("RGB").resize((64, 64))
SMALL = {"height": 64, "width": 64, "num_inference_steps": 2}
#: A table that changes the schedule, by the tiny pipeline.
CHANGED = {
    "qwen-image-edit": {"shift": 3.0},
    "flux-kontext": {"class": "FlowMatchLCMScheduler", "shift": 3.0},
    "instruct-pix2pix": {"class": "LCMScheduler", "timestep_scaling": 5.0},
}
#: The scheduler of Qwen/Qwen-Image-Edit and of its 2509, as its scheduler_config.json has it.
QWEN = {
    "_class_name": "FlowMatchEulerDiscreteScheduler",
    "base_image_seq_len": 256,
    "base_shift": 0.5,
    "invert_sigmas": False,
    "max_image_seq_len": 8192,
    "max_shift": 0.9,
    "num_train_timesteps": 1000,
    "shift": 1.0,
    "shift_terminal": 0.02,
    "stochastic_sampling": False,
    "time_shift_type": "exponential",
    "use_beta_sigmas": False,
    "use_dynamic_shifting": True,
    "use_exponential_sigmas": False,
    "use_karras_sigmas": False,
}
#: What generate_with_diffusers.py of ModelTC/Qwen-Image-Lightning builds its scheduler from.
UPSTREAM = QWEN | {"base_shift": math.log(3), "max_shift": math.log(3), "shift_terminal": None}
LIGHTNING_FILE = "Qwen-Image-Edit-Lightning-4steps-V1.0.safetensors"


def call_of(name):
    return {"num_inference_steps": 2} if name == "instruct-pix2pix" else SMALL


def edited(editor):
    seeding.seed_all(5)  # FlowMatchLCMScheduler draws noise of its own
    return np.asarray(editor.edit(EditRequest("a", "physics", "make it snow", PHOTO, 5)), int)


def made(model, **params):
    return DiffusersEditor(str(model), device="cpu", **params)


def key(tmp_path, model, **params):
    spec = f"diffusers:{model}"
    return identify(make_model("editor", spec, params), tmp_path / "cache.json").digest


def refused(model, **params):
    with pytest.raises(SettingError) as caught:
        make_model("editor", f"diffusers:{model}", params).check(Site())
    return caught.value.key, str(caught.value)


@pytest.fixture
def qwen(tiny, tmp_path):
    """The tiny Qwen-Image-Edit with the scheduler of the real one."""
    folder = tmp_path / "model"
    shutil.copytree(tiny("qwen-image-edit"), folder)
    (folder / schedulers.CONFIG).write_text(json.dumps(QWEN))
    return folder


@pytest.fixture
def adapter(tmp_path):
    """Return a function that writes an adapter with a name and metadata."""

    def write(name=LIGHTNING_FILE, **metadata):
        path = tmp_path / "adapters" / name
        path.parent.mkdir(exist_ok=True)
        layer = "transformer_blocks.0.attn.to_q"
        tensors = {
            f"{layer}.lora_down.weight": np.zeros((1, 32), np.float32),
            f"{layer}.lora_up.weight": np.zeros((32, 1), np.float32),
        }
        safetensors.save_file(tensors, path, metadata)
        return path

    return write


def remarks(model, path, **params):
    given = {"loras": [{"path": str(path)}], **params}
    return list(make_model("editor", f"diffusers:{model}", given).remarks)


@pytest.mark.everyday_for("qwen-image-edit")
@pytest.mark.parametrize("name", CHANGED)
def test_another_schedule_changes_edit_and_key_as_the_pipeline_itself_does(tiny, tmp_path, name):
    model, table, call = tiny(name), CHANGED[name], call_of(name)
    plain, changed = made(model, **call), made(model, **call, scheduler=table)
    edit = edited(changed)
    assert (edit != edited(plain)).any()
    assert key(tmp_path, model, **call) != key(tmp_path, model, **call, scheduler=table)
    pipeline = plain.pipeline
    chosen = getattr(diffusers, table.get("class", type(pipeline.scheduler).__name__))
    given = {name: value for name, value in table.items() if name != "class"}
    pipeline.scheduler = chosen.from_config(pipeline.scheduler.config, **given)
    assert (edited(plain) == edit).all()
    assert dict(changed.pipeline.scheduler.config) == dict(pipeline.scheduler.config)


@pytest.mark.parametrize("as_float", [True, False])
def test_the_bases_own_configuration_changes_neither_edit_nor_key(qwen, tmp_path, as_float):
    table = {"class": QWEN["_class_name"], "shift": 1.0 if as_float else 1, "base_shift": 0.5}
    assert key(tmp_path, qwen, scheduler=table) == key(tmp_path, qwen)
    assert key(tmp_path, qwen, scheduler={"class": QWEN["_class_name"]}) == key(tmp_path, qwen)
    options = DiffusersParameters.parse({"scheduler": table})
    built = scheduling.built_scheduler(str(qwen), options)["scheduler"]
    own = diffusers.FlowMatchEulerDiscreteScheduler.from_pretrained(qwen, subfolder="scheduler")
    for scheduler in (built, own):
        scheduler.set_timesteps(4, mu=0.7)
    assert built.sigmas.equal(own.sigmas)


def test_two_spellings_of_one_schedule_have_one_key(qwen, tmp_path):
    short = {"base_shift": 1, "shift_terminal": "none"}
    long = {**QWEN, "base_shift": 1.0, "shift_terminal": "none", "class": QWEN["_class_name"]}
    del long["_class_name"]
    assert key(tmp_path, qwen, scheduler=short) == key(tmp_path, qwen, scheduler=long)
    assert key(tmp_path, qwen, scheduler={"base_shift": 1}) != key(tmp_path, qwen, scheduler=short)
    assert schedulers.deciding(str(qwen), long) == {"base_shift": 1.0, "shift_terminal": "none"}


def test_of_a_hub_id_that_is_not_here_the_whole_table_counts():
    assert schedulers.deciding("no/model-here", {"shift": 3}) == {"shift": 3}
    schedulers.check("no/model-here", {"shift": 3}, {"sigmas": [1.0]})


def test_no_scheduler_takes_the_text_that_stands_for_none():
    for path in source_file("diffusers.schedulers").parent.rglob("scheduling_*.py"):
        text = path.read_text("utf-8")
        assert '"none"' not in text, path
        assert "'none'" not in text, path


@pytest.mark.parametrize(
    ("table", "place", "reason"),
    [
        ({"class": "FlowMatchEuler"}, "scheduler.class", "expected a scheduler of diffusers"),
        ({"class": "EulerDiscreteSchedulr"}, "scheduler.class", "'EulerDiscreteScheduler'?"),
        ({"shfit": 3.0}, "scheduler.shfit", "did you mean 'shift'?"),
        ({"_class_name": "X"}, "scheduler._class_name", "no such key; did you mean 'class'?"),
        ({"shift": "3"}, "scheduler.shift", "found '3', expected float"),
        ({"shift": True}, "scheduler.shift", "found True, expected float"),
        ({"shift": "none"}, "scheduler.shift", "found None, expected float"),
        ({"time_shift_type": "cubic"}, "scheduler.time_shift_type", "'exponential' or 'linear'"),
        (
            {"class": "FlowMatchHeunDiscreteScheduler"},
            "scheduler",
            "takes no sigmas of the pipeline, expected one such as FlowMatchEulerDiscreteScheduler",
        ),
        ({"class": "EulerDiscreteScheduler"}, "scheduler", "it takes no mu of the pipeline"),
    ],
)
def test_what_no_scheduler_takes_is_refused_before_weights_load(qwen, table, place, reason):
    found, text = refused(qwen, scheduler=table)
    assert found == place
    assert reason in text
    assert "\n" not in text


@pytest.mark.parametrize(
    ("params", "place", "reason"),
    [
        (
            {"scheduler": "Euler"},
            "scheduler",
            "expected a table, such as {class = \"EulerDiscreteScheduler\"}, found 'Euler'",
        ),
        (
            {"loras": "x"},
            "loras",
            "expected a list, such as [{path = \"a.safetensors\"}], found 'x'",
        ),
        (
            {"loras": ["x"]},
            "loras",
            "expected a list of tables, such as [{path = \"a.safetensors\"}], found 'x'",
        ),
        ({"lora": "x"}, "lora", "no such argument is taken; did you mean 'loras'?"),
    ],
)
def test_another_form_than_a_table_is_refused_with_the_form_to_write(qwen, params, place, reason):
    assert refused(qwen, **params) == (place, reason)


def test_doctor_prints_what_a_plan_remarks(qwen, adapter, tmp_path):
    config = tmp_path / "imgedit.toml"
    config.write_text(
        f"""
        [suite]
        spec = "scenes:n=1"
        [editor]
        spec = "diffusers:{qwen}"
        loras = [{{path = "{adapter()}"}}]
        [judge]
        spec = "none"
        """
    )
    document, text, code = examine(config)
    [editor] = [row for row in document["models"] if row["role"] == "editor"]
    [remark] = editor["remarks"]
    assert "is by its name an adapter for 4 steps, found 50 steps" in remark
    assert f"\nremark: {remark}\n" in text
    assert code == 0


#: Another value of each argument that `set_timesteps` or the pipeline may read.
OTHERS = {
    "shift": 3.0,
    "base_shift": 0.8,
    "max_shift": 1.5,
    "base_image_seq_len": 512,
    "max_image_seq_len": 9000,
    "time_shift_type": "linear",
    "shift_terminal": 0.1,
    "invert_sigmas": True,
    "num_train_timesteps": 500,
    "use_karras_sigmas": True,
    "use_exponential_sigmas": True,
}


@pytest.mark.parametrize("is_dynamic", [True, False])
@pytest.mark.parametrize("name", scheduler_keys.CLASSES)
def test_the_keys_that_change_nothing_are_those_of_equal_schedules(name, is_dynamic):
    """By diffusers' own `set_timesteps`, for pictures of 256² to 2048², several numbers of steps,
    and calls with and without sigmas.
    """
    shift = Later("diffusers.pipelines.qwenimage.pipeline_qwenimage_edit").calculate_shift
    taken = schedulers.class_of(name).init.annotations
    base = {key: value for key, value in QWEN.items() if key in taken}
    base["use_dynamic_shifting"] = is_dynamic

    def schedules(**changed):
        scheduler = getattr(diffusers, name)(**{**base, **changed})
        config = scheduler.config
        for patches in (256, 4096, 16384):
            mu = shift(
                patches,
                config.base_image_seq_len,
                config.max_image_seq_len,
                config.base_shift,
                config.max_shift,
            )
            for steps in (2, 4, 9, 30):
                for call in ({"sigmas": np.linspace(1, 1 / steps, steps)}, {"num": steps}):
                    count = call.pop("num", None)
                    scheduler.set_timesteps(count, mu=mu, **call)
                    yield scheduler.sigmas.tolist(), scheduler.timesteps.tolist()

    plain = list(schedules())
    idle = scheduler_keys.idle_keys(name, base, "QwenImageEditPipeline")
    assert idle <= OTHERS.keys()
    for key, value in OTHERS.items():
        assert (list(schedules(**{key: value})) == plain) == (key in idle), key


def test_a_shift_that_does_not_act_is_refused_with_the_settings_that_do(qwen):
    place, text = refused(qwen, scheduler={"shift": 3.0})
    assert place == "scheduler.shift"
    assert text == (
        "found 3.0, which changes nothing: FlowMatchEulerDiscreteScheduler shifts as the pipeline "
        "says while use_dynamic_shifting is true, expected "
        "editor.scheduler.use_dynamic_shifting=false beside it, or "
        "editor.scheduler.base_shift=1.0986122886681098 and "
        "editor.scheduler.max_shift=1.0986122886681098 in its place"
    )
    for table in (
        {"shift": 3.0, "use_dynamic_shifting": False},
        {"base_shift": math.log(3), "max_shift": math.log(3)},
    ):
        make_model("editor", f"diffusers:{qwen}", {"scheduler": table}).check(Site())
        options = DiffusersParameters.parse({"scheduler": {**table, "shift_terminal": "none"}})
        built = scheduling.built_scheduler(str(qwen), options)["scheduler"]
        built.set_timesteps(sigmas=[1.0, 0.75, 0.5, 0.25], mu=math.log(3))
        assert built.sigmas.tolist() == pytest.approx([1.0, 0.9, 0.75, 0.5, 0.0])


@pytest.mark.parametrize("key", ["time_shift_type", *scheduler_keys.OF_MU])
def test_what_the_shift_of_a_picture_comes_from_is_refused_where_it_is_fixed(qwen, key):
    (qwen / schedulers.CONFIG).write_text(json.dumps(QWEN | {"use_dynamic_shifting": False}))
    place, text = refused(qwen, scheduler={key: OTHERS[key]})
    assert place == f"scheduler.{key}"
    assert "shifts by its shift while use_dynamic_shifting is false" in text
    assert text.endswith(
        "expected editor.scheduler.shift, or editor.scheduler.use_dynamic_shifting=true beside it"
    )
    whole = {**QWEN, "use_dynamic_shifting": False, "class": QWEN["_class_name"]}
    del whole["_class_name"], whole["shift_terminal"]
    make_model("editor", f"diffusers:{qwen}", {"scheduler": whole}).check(Site())


def test_a_default_that_does_not_act_may_be_written_out(qwen):
    (qwen / schedulers.CONFIG).write_text(json.dumps(QWEN | {"shift": 3.0}))
    table = dict(scheduler_remarks.LIGHTNING)
    assert table["shift"] == 1.0
    make_model("editor", f"diffusers:{qwen}", {"scheduler": table}).check(Site())


def test_a_pipeline_that_computes_the_shift_from_the_steps_reads_no_key_for_it(tmp_path):
    (tmp_path / "scheduler").mkdir()
    (tmp_path / schedulers.CONFIG).write_text(json.dumps(QWEN))
    (tmp_path / "model_index.json").write_text('{"_class_name": "Flux2KleinPipeline"}')
    with pytest.raises(SettingError, match="Flux2KleinPipeline computes the shift without it"):
        schedulers.check(str(tmp_path), {"base_shift": 1.0}, {})
    with pytest.raises(SettingError, match=r"use_dynamic_shifting=false beside it$"):
        schedulers.check(str(tmp_path), {"shift": 3.0}, {})
    schedulers.check(str(tmp_path), {"shift": 3.0, "use_dynamic_shifting": False}, {})


def test_a_worker_refuses_as_the_check_does(qwen):
    options = DiffusersParameters.parse({"scheduler": {"shfit": 3.0}})
    with pytest.raises(SetupError, match=r"editor\.scheduler\.shfit: .*did you mean 'shift'"):
        scheduling.built_scheduler(str(qwen), options)
    options = DiffusersParameters.parse(
        {"scheduler": {"use_karras_sigmas": True, "use_beta_sigmas": True}}
    )
    with pytest.raises(SetupError, match=r"editor\.scheduler: FlowMatchEuler.*Only one of"):
        scheduling.built_scheduler(str(qwen), options)


@pytest.mark.parametrize(
    ("name", "own", "suggested"),
    [
        ("qwen-image-edit", "FlowMatchEulerDiscreteScheduler", []),
        ("flux-kontext", "FlowMatchEulerDiscreteScheduler", []),
        (
            "instruct-pix2pix",
            "PNDMScheduler",
            ["EulerDiscreteScheduler", "DPMSolverMultistepScheduler", "DDIMScheduler"],
        ),
    ],
)
def test_schedulers_that_a_pipeline_can_use_are_suggested(tiny, tmp_path, name, own, suggested):
    model = tmp_path / "model"
    shutil.copytree(tiny(name), model)
    (model / schedulers.CONFIG).write_text(json.dumps({"_class_name": own}))
    _, text = refused(model, scheduler={"class": "FlowMatchHeunDiscreteScheduler"})
    assert text.endswith("expected one such as " + ", ".join([own, *suggested]))


def without(monkeypatch, name):
    import diffusers.utils.import_utils as found

    monkeypatch.setattr(found, f"_{name}_available", False)


@pytest.mark.parametrize(
    ("name", "table", "missing", "reason"),
    [
        (
            "qwen-image-edit",
            {"use_karras_sigmas": True, "use_beta_sigmas": True},
            "",
            "FlowMatchEulerDiscreteScheduler: ValueError: Only one of `config.use_beta_sigmas`",
        ),
        (
            "qwen-image-edit",
            {"use_beta_sigmas": True},
            "scipy",
            "FlowMatchEulerDiscreteScheduler: ImportError: Make sure to install scipy",
        ),
        (
            "instruct-pix2pix",
            {"class": "DPMSolverSDEScheduler"},
            "torchsde",
            "DPMSolverSDEScheduler: ImportError: DPMSolverSDEScheduler requires the torchsde",
        ),
        (
            "instruct-pix2pix",
            {"class": "DDIMScheduler", "beta_schedule": "cubic"},
            "",
            "DDIMScheduler: NotImplementedError: cubic is not implemented",
        ),
        (
            "instruct-pix2pix",
            {"class": "UniPCMultistepScheduler", "shift_terminal": True},
            "",
            "UniPCMultistepScheduler: ValueError: `shift_terminal` is only supported when",
        ),
    ],
)
def test_what_a_class_refuses_itself_ends_before_weights_load(
    tiny, monkeypatch, name, table, missing, reason
):
    if missing:
        without(monkeypatch, missing)
    loaded = []
    monkeypatch.setattr(
        diffusers.DiffusionPipeline, "from_pretrained", lambda *_, **__: loaded.append(1)
    )
    with pytest.raises(SetupError) as raised:
        made(tiny(name), scheduler=table, **call_of(name))
    assert str(raised.value).startswith(f"editor.scheduler: {reason}")
    assert "\n" not in str(raised.value)
    assert not loaded


ONE_STEP = (
    "1 step, which FlowMatchEulerDiscreteScheduler cannot stretch to its shift_terminal of 0.02, "
    'expected 2 steps or more, or editor.scheduler.shift_terminal="none"'
)


def test_one_step_cannot_be_stretched(qwen):
    assert refused(qwen, num_inference_steps=1) == ("num_inference_steps", ONE_STEP)
    place, text = refused(qwen, sigmas=[1.0], scheduler={"shift_terminal": 0.1})
    assert place == "sigmas"
    assert "the last of them is 1, which FlowMatchEulerDiscreteScheduler cannot stretch" in text
    for params in (
        {"num_inference_steps": 2},
        {"sigmas": [0.9]},
        {"sigmas": [1.0, 0.5]},
        {"num_inference_steps": 1, "scheduler": {"shift_terminal": "none"}},
    ):
        make_model("editor", f"diffusers:{qwen}", params).check(Site())


@pytest.mark.parametrize(
    ("name", "further"),
    [
        ("FlowMatchEulerDiscreteScheduler", {}),
        ("FlowMatchLCMScheduler", {}),
        (
            "UniPCMultistepScheduler",
            {"use_flow_sigmas": True, "prediction_type": "flow_prediction"},
        ),
    ],
)
def test_the_schedules_that_are_refused_are_those_that_are_no_numbers(name, further):
    assert "stretch_shift_to_terminal" in schedulers.class_of(name).names
    scheduler = getattr(diffusers, name)(
        shift_terminal=0.1, use_dynamic_shifting=True, time_shift_type="exponential", **further
    )
    for sigmas, is_undefined in (([1.0], True), ([0.9], False), ([1.0, 0.5], False)):
        with np.errstate(invalid="ignore", divide="ignore"):
            scheduler.set_timesteps(sigmas=np.array(sigmas), mu=0.7)
        assert bool(scheduler.sigmas.isnan().any()) == is_undefined


def test_schedules_of_the_call_need_a_scheduler_that_takes_them(qwen):
    make_model("editor", f"diffusers:{qwen}", {"sigmas": [1.0, 0.5]}).check(Site())
    (qwen / schedulers.CONFIG).write_text('{"_class_name": "FlowMatchHeunDiscreteScheduler"}')
    place, text = refused(qwen, sigmas=[1.0, 0.5])
    assert place == "sigmas"
    assert "FlowMatchHeunDiscreteScheduler takes no sigmas of its own, expected a sched" in text


def test_sigmas_are_shifted_by_the_scheduler_and_set_the_number_of_steps(qwen):
    editor = made(
        qwen, height=64, width=64, sigmas=[1.0, 0.5], scheduler=dict(scheduler_remarks.LIGHTNING)
    )
    edited(editor)
    sigmas = editor.pipeline.scheduler.sigmas  # a shift of 3 makes 3·0.5 / (1 + 2·0.5) of 0.5
    assert sigmas.tolist() == pytest.approx([1.0, 0.75, 0.0])


def test_lightnings_table_over_the_real_base_is_what_upstream_builds(qwen):
    """The sigmas of 4 steps at 1024², which are 4096 patches."""
    options = DiffusersParameters.parse({"scheduler": dict(scheduler_remarks.LIGHTNING)})
    ours = scheduling.built_scheduler(str(qwen), options)["scheduler"]
    upstream = diffusers.FlowMatchEulerDiscreteScheduler.from_config(dict(UPSTREAM))
    shift = Later("diffusers.pipelines.qwenimage.pipeline_qwenimage_edit").calculate_shift
    for scheduler in (ours, upstream):
        config = scheduler.config
        mu = shift(4096, 256, 8192, config.base_shift, config.max_shift)
        scheduler.set_timesteps(sigmas=np.linspace(1.0, 1 / 4, 4), mu=mu)
    assert ours.sigmas.equal(upstream.sigmas)
    # a shift of 3: 3s / (1 + 2s) of s = 1, 3/4, 1/2, 1/4
    assert ours.sigmas.tolist() == pytest.approx([1.0, 0.9, 0.75, 0.5, 0.0])


@pytest.mark.parametrize("steps", [8, 4])
@pytest.mark.parametrize("place", ["docs", "config"])
def test_a_ready_config_has_nothing_to_remark(qwen, adapter, place, steps):
    if place == "docs":
        page = (Path(__file__).parents[2] / "docs" / "pipelines.md").read_text()
        [block] = re.findall(r"^```toml\n(# .*?Lightning.*?)^```$", page, re.MULTILINE | re.DOTALL)
    else:
        shipped = files("pytest_imgedit.benchmark").joinpath("configs")
        block = shipped.joinpath("qwen-image-edit-lightning.toml").read_text()
    block = block.replace("4steps", f"{steps}steps")
    block = block.replace("num_inference_steps = 4", f"num_inference_steps = {steps}")
    tables = tomllib.loads(block)
    [lora] = tables["editor"]["loras"]
    path = adapter(Path(lora["path"]).name)
    assert f"{steps}steps" in path.name
    params = {**tables["editor"], "loras": [{**lora, "path": str(path)}]}
    assert params.pop("spec").startswith("diffusers:Qwen/Qwen-Image-Edit")
    model = make_model("editor", f"diffusers:{qwen}", params)
    model.check(Site())
    assert not model.remarks
    assert schedulers.deciding(str(qwen), params["scheduler"]) == {
        "base_shift": pytest.approx(math.log(3)),
        "max_shift": pytest.approx(math.log(3)),
        "shift_terminal": "none",
    }


def test_an_adapter_that_says_its_steps_is_told_what_it_wants(qwen, adapter):
    path = adapter()
    [line] = remarks(qwen, path)
    assert "adapter for 4 steps, found 50 steps, true_cfg_scale 4.0, the model's own sched" in line
    assert "editor.num_inference_steps=4, editor.true_cfg_scale=1.0, editor.scheduler={" in line
    assert 'shift_terminal = "none"' in line
    right = {"num_inference_steps": 4, "true_cfg_scale": 1.0}
    [line] = remarks(qwen, path, **right)
    assert "found the model's own scheduler; expected editor.scheduler=" in line
    assert not remarks(qwen, path, **right, scheduler=dict(scheduler_remarks.LIGHTNING))
    assert not remarks(qwen, adapter("plain.safetensors"))


@pytest.mark.parametrize(
    ("table", "found"),
    [
        ({"base_shift": math.log(3), "max_shift": math.log(3)}, "shift_terminal 0.02, not None"),
        ({"base_shift": 1.0986, "max_shift": 1.0986}, "shift_terminal 0.02, not None"),
        ({"shift": 3.0, "use_dynamic_shifting": False}, "shift_terminal 0.02, not None"),
        ({"shift_terminal": "none"}, "base_shift 0.5, not 1.0986122886681098, max_shift 0.9, not"),
        ({"shift": 1.0}, "the model's own scheduler"),
        (
            {**scheduler_remarks.LIGHTNING, "use_karras_sigmas": True},
            "use_karras_sigmas True, not False",
        ),
    ],
)
def test_a_scheduler_that_is_lightnings_in_part_is_told_what_it_lacks(qwen, adapter, table, found):
    right = {"num_inference_steps": 4, "true_cfg_scale": 1.0}
    [line] = remarks(qwen, adapter(), **right, scheduler=table)
    assert f"found {found}" in line
    assert line.endswith(
        "expected editor.scheduler={base_shift = 1.0986122886681098, "
        'max_shift = 1.0986122886681098, shift_terminal = "none"}'
    )


@pytest.mark.parametrize(
    "table",
    [
        {"base_shift": 1.0986, "max_shift": 1.0986},
        {"shift": 3.0, "use_dynamic_shifting": False},
        {"shift": 3, "use_dynamic_shifting": False, "class": "FlowMatchEulerDiscreteScheduler"},
        {"base_shift": 3, "max_shift": 3, "time_shift_type": "linear"},
    ],
)
def test_another_way_to_write_lightnings_schedule_has_nothing_to_remark(qwen, adapter, table):
    right = {"num_inference_steps": 4, "true_cfg_scale": 1.0}
    assert not remarks(qwen, adapter(), **right, scheduler={**table, "shift_terminal": "none"})


@pytest.mark.parametrize(
    ("name", "steps"),
    [
        ("Qwen-Image-Edit-2511-Lightning-4steps-V1.0-bf16", 4),
        ("hyper-sd-8step", 8),
        ("Hyper-FLUX.1-dev-16steps-lora", 16),
        ("sdxl_lightning_2step_lora", 2),
        ("turbo-8-steps", 8),
        ("step-2000", None),
        ("step_4", None),
        ("000004steps", None),
        ("lora-500steps", None),
        ("my-lora-2_step_4000", None),
        ("v1-step500", None),
        ("pytorch_lora_weights-step500", None),
        ("checkpoint-4steps-of-warmup", None),
        ("4stepsize", None),
    ],
)
def test_a_trainers_step_is_no_number_of_few_steps(name, steps):
    assert scheduler_remarks.steps_of(name) == steps


def test_sigmas_count_as_steps(qwen, adapter):
    right = {"true_cfg_scale": 1.0, "scheduler": dict(scheduler_remarks.LIGHTNING)}
    path = adapter()
    assert not remarks(qwen, path, sigmas=[1.0, 0.75, 0.5, 0.25], **right)
    [line] = remarks(qwen, path, sigmas=[1.0, 0.5], **right)
    assert "found 2 sigmas; expected 4 values of editor.sigmas" in line


def test_of_several_adapters_the_one_for_few_steps_is_told(qwen, adapter):
    plain, few = adapter("style.safetensors"), adapter("hyper-sd-8step.safetensors")

    def lines(weight):
        loras = [{"path": str(plain)}, {"path": str(few), "weight": weight}]
        return list(make_model("editor", f"diffusers:{qwen}", {"loras": loras}).remarks)

    [line] = lines(0.5)
    assert f"{few} is by its name an adapter for 8 steps, found 50 steps, true_cfg_scale" in line
    assert "scheduler" not in line
    assert not lines(0.0)


@pytest.mark.parametrize(
    ("name", "index", "found"),
    [
        ("flux-kontext", {}, "28 steps"),
        ("flux2-klein", {"is_distilled": True}, "50 steps"),
        ("flux2-klein", {"is_distilled": False}, "50 steps, guidance_scale 4.0"),
    ],
)
def test_guidance_that_a_model_has_distilled_stays(tmp_path, adapter, name, index, found):
    classes = {"flux-kontext": "FluxKontextPipeline", "flux2-klein": "Flux2KleinPipeline"}
    model = tmp_path / "model"
    model.mkdir()
    index = {"_class_name": classes[name], **index}
    (model / "model_index.json").write_text(json.dumps(index))
    [line] = remarks(model, adapter("turbo-8steps.safetensors"))
    assert f"found {found}; expected editor.num_inference_steps=8" in line


@pytest.mark.parametrize("place", ["beside", "folder", "metadata"])
def test_an_adapter_that_names_a_scheduler_is_told_how_it_differs(qwen, adapter, place):
    metadata = {"scheduler_config": json.dumps(UPSTREAM)} if place == "metadata" else {}
    path = adapter("a.safetensors", **metadata)
    if place != "metadata":
        (path.parent / "scheduler").mkdir()
        name = "scheduler_config.json" if place == "beside" else schedulers.CONFIG
        (path.parent / name).write_text(json.dumps(UPSTREAM))
    [line] = remarks(qwen, path.parent if place == "folder" else path)
    assert "base_shift 1.0986122886681098, not 0.5" in line
    assert "shift_terminal None, not 0.02" in line
    assert "editor.scheduler={base_shift = 1.0986122886681098, max_shift" in line
    assert not remarks(qwen, path, scheduler=dict(scheduler_remarks.LIGHTNING))


def test_a_shift_that_an_adapter_names_and_does_not_use_is_not_asked_for(qwen, adapter):
    path = adapter("a.safetensors", scheduler_config=json.dumps(QWEN | {"shift": 3.0}))
    assert not remarks(qwen, path)
    both = QWEN | {"shift": 3.0, "max_shift": 1.15}
    [line] = remarks(qwen, adapter("b.safetensors", scheduler_config=json.dumps(both)))
    assert "in use (max_shift 1.15, not 0.9)" in line
    assert "editor.scheduler={max_shift = 1.15} is what it names" in line


def test_scipy_is_needed_by_the_scheduler_in_use(tiny):
    model = tiny("qwen-image-edit")

    def unused(**params):
        return make_model("editor", f"diffusers:{model}", params).requirements.unused_packages

    assert "scipy" in unused()
    assert "scipy" not in unused(scheduler={"use_beta_sigmas": True})


def test_shards_are_loaded_with_the_scheduler(qwen, monkeypatch):
    taken = {}

    def load(folder, device, dtype, **components):
        taken.update(components)
        raise SetupError("seen")

    # by the function's own module: another test may have had it imported once more
    monkeypatch.setitem(fsdp.load_sharded.__globals__, "load_pipeline", load)
    options = DiffusersParameters.parse(
        {"scheduler": {"shift_terminal": 0.5}, "shard": {"strategy": "context"}}
    )
    built = scheduling.built_scheduler(str(qwen), options)
    with pytest.raises(SetupError, match="seen"):
        fsdp.load_sharded(qwen, torch.device("cpu"), torch.float32, options.shard, **built)
    assert taken["scheduler"].config.shift_terminal == 0.5
