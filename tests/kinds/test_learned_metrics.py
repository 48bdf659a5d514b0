"""Learned metrics over tiny checkpoints with random weights: what is compared with what."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from later import Later
from PIL import Image

from pytest_imgedit.core.errors import SetupError, UsageError
from pytest_imgedit.core.requests import Question
from pytest_imgedit.kinds.base import Site, Where
from pytest_imgedit.kinds.registry import make_model

pytestmark = pytest.mark.everyday

torch = Later("torch")
safetensors = Later("safetensors.torch")
transformers = Later("transformers")
tiny_models = Later("tiny_models")

SIDE = 16
TOWER = {
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
}
SMALL = {"size": {"shortest_edge": SIDE}, "crop_size": {"height": SIDE, "width": SIDE}}


@pytest.fixture(scope="module")
def clip(tmp_path_factory):
    folder = tmp_path_factory.mktemp("clip")
    words = tiny_models.tokenizer(300, ["<|endoftext|>", "<|im_end|>"], ["make the sky red"])
    words.save_pretrained(folder)
    text = {
        **TOWER,
        "vocab_size": len(words),
        "max_position_embeddings": 12,
        "eos_token_id": words.eos_token_id,
        "pad_token_id": words.pad_token_id,
        "bos_token_id": words.eos_token_id,
    }
    vision = {**TOWER, "image_size": SIDE, "patch_size": 8}
    torch.manual_seed(0)
    model = transformers.CLIPModel(
        transformers.CLIPConfig(text_config=text, vision_config=vision, projection_dim=8)
    )
    model.save_pretrained(folder)
    transformers.CLIPImageProcessorPil(**SMALL).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def dino(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dino")
    torch.manual_seed(0)
    transformers.Dinov2Model(
        transformers.Dinov2Config(
            hidden_size=16,
            num_hidden_layers=2,
            num_attention_heads=2,
            image_size=SIDE,
            patch_size=8,
        )
    ).save_pretrained(folder)
    transformers.CLIPImageProcessorPil(**SMALL).save_pretrained(folder)
    return folder


@pytest.fixture(params=["clip-image", "clip-text", "dino"])
def spec(request, clip, dino):
    return f"{request.param}:{dino if request.param == 'dino' else clip}"


def picture(seed):
    patches = np.random.default_rng(seed).integers(0, 256, (5, 6, 3), dtype=np.uint8)
    return Image.fromarray(patches).resize((24, 20), Image.Resampling.BICUBIC)


def question(instruction="make the sky red", **images):
    return Question("a", "physics", instruction, {"source": picture(0), **images})


def worker(spec, **params):
    model = make_model("metric", spec, params)
    model.check(Site(may_have_gpus=False))
    return model.target.build("cpu", model.worker_params)


@pytest.fixture(params=["clip-image", "dino"])
def comparison(request, clip, dino):
    return f"{request.param}:{dino if request.param == 'dino' else clip}"


def test_an_untouched_source_is_like_itself_and_another_image_is_less_so(comparison):
    same, other = worker(comparison).answer(
        [question(edited=picture(0)), question(edited=picture(1))]
    )
    assert same.score == pytest.approx(1)
    assert -1 <= other.score < 0.9999


def test_edit_is_compared_with_the_reference_if_that_is_asked_for(comparison):
    measure = worker(comparison, against="reference")
    right, missing = measure.answer(
        [question(edited=picture(1), reference=picture(1)), question(edited=picture(1))]
    )
    assert right.score == pytest.approx(1)
    assert "no reference image" in missing.error


def test_value_does_not_depend_on_the_other_edits_of_a_batch(spec):
    measure = worker(spec)
    questions = [question(edited=picture(seed)) for seed in range(3)]
    together = [answer.score for answer in measure.answer(questions)]
    assert together == [measure.answer([single])[0].score for single in questions]
    assert len(set(together)) == 3


def test_clip_image_is_the_cosine_of_the_embeddings_that_transformers_computes(clip):
    model = transformers.CLIPModel.from_pretrained(clip)
    images = [picture(0), picture(1)]
    pixels = transformers.CLIPImageProcessorPil.from_pretrained(clip)(images, return_tensors="pt")
    outputs = model.vision_model(**pixels).pooler_output
    source, edited = model.visual_projection(outputs).detach().numpy()
    expected = source @ edited / np.linalg.norm(source) / np.linalg.norm(edited)
    answer = worker(f"clip-image:{clip}").answer([question(edited=picture(1))])[0]
    assert answer.score == pytest.approx(expected, abs=1e-5)


def test_clip_text_is_what_clip_gives_image_and_text_without_its_temperature(clip):
    words = "sky red"
    measure = worker(f"clip-text:{clip}")
    tokens = measure.tokenizer([words], return_tensors="pt")
    pixels = measure.pixels([picture(1)])
    outputs = measure.model(
        input_ids=tokens["input_ids"],
        attention_mask=tokens["attention_mask"],
        pixel_values=pixels,
    )
    expected = outputs.logits_per_image.item() / measure.model.logit_scale.exp().item()
    answer = measure.answer([question(words, edited=picture(1))])[0]
    assert answer.score == pytest.approx(expected, abs=1e-5)


def test_dino_compares_the_class_tokens(dino):
    model = transformers.Dinov2Model.from_pretrained(dino).eval()
    images = [picture(0), picture(1)]
    pixels = transformers.CLIPImageProcessorPil.from_pretrained(dino)(images, return_tensors="pt")
    source, edited = model(**pixels).pooler_output.detach().numpy()
    expected = source @ edited / np.linalg.norm(source) / np.linalg.norm(edited)
    answer = worker(f"dino:{dino}").answer([question(edited=picture(1))])[0]
    assert answer.score == pytest.approx(expected, abs=1e-5)


def test_long_instruction_is_cut_to_what_clip_reads(clip):
    answers = worker(f"clip-text:{clip}").answer(
        [
            question("make the sky red " * 20, edited=picture(1)),
            question("make the sky red " * 30, edited=picture(1)),
        ]
    )
    assert answers[0].score == answers[1].score is not None


def test_metric_that_gives_one_edit_two_values_stops_the_run(comparison):
    measure = worker(comparison)
    measure.self_check()
    measure.features = lambda pixels: torch.rand(2, 8)
    with pytest.raises(SetupError, match="two values"):
        measure.self_check()


def test_checkpoint_of_another_kind_of_model_is_refused(clip, dino):
    with pytest.raises(UsageError, match="model_type 'clip', expected dinov2 or"):
        worker(f"dino:{clip}")
    with pytest.raises(UsageError, match="model_type 'dinov2', expected clip for the metric"):
        worker(f"clip-text:{dino}")


def test_metrics_compute_in_float32_on_a_gpu_too(spec):
    model = make_model("metric", spec, {})
    assert Where("cuda").resolved_dtype(model.params) == "float32"
    weights = sum(path.stat().st_size for path in model.checkpoint.folder.glob("*.safetensors"))
    assert 0.8 * weights < model.memory().weights <= weights


def test_checkpoint_that_is_not_there_is_named_and_not_downloaded(tmp_path):
    with pytest.raises(UsageError, match="no such folder"):
        worker(f"dino:{tmp_path / 'missing'}")
    assert not list(tmp_path.iterdir())


@pytest.fixture
def damaged(clip, dino, tmp_path):
    """Copy a checkpoint, change its tensors, and return the spec of the copy."""

    def damage(name, change):
        folder = tmp_path / "damaged"
        shutil.copytree(dino if name == "dino" else clip, folder)
        tensors = safetensors.load_file(folder / "model.safetensors")
        change(tensors)
        safetensors.save_file(tensors, folder / "model.safetensors", {"format": "pt"})
        return f"{name}:{folder}"

    return damage


def one_is(value):
    def change(tensors):
        name = next(name for name in tensors if name.endswith("layernorm.weight"))
        tensors[name] = torch.full_like(tensors[name], value)

    return change


def all_are(value):
    def change(tensors):
        for name in tensors:
            if tensors[name].is_floating_point():
                tensors[name] = torch.full_like(tensors[name], value)

    return change


@pytest.mark.parametrize("name", ["clip-image", "clip-text", "dino"])
@pytest.mark.parametrize("deterministic", [True, False])
@pytest.mark.parametrize(
    "change",
    [one_is(float("nan")), all_are(float("nan")), all_are(float("inf")), all_are(3e38)],
    ids=["a tensor of NaN", "NaN", "infinity", "overflow"],
)
def test_weights_without_a_finite_value_are_refused_by_their_folder(
    damaged, name, change, deterministic
):
    spec = damaged(name, change)
    measure = worker(spec, deterministic=deterministic)
    with pytest.raises(SetupError, match=r"damaged: the metric is nan, .* are not damaged$"):
        measure.self_check()


def cut(tensors):
    name = max(tensors, key=lambda name: tensors[name].numel())
    tensors[name] = tensors[name][:-1].clone()


def lose(tensors):
    del tensors[next(name for name in tensors if name.endswith("layernorm.weight"))]


def gain(tensors):
    tensors["further.weight"] = torch.zeros(1)


@pytest.mark.parametrize("name", ["clip-image", "clip-text", "dino"])
@pytest.mark.parametrize("change", [cut, lose, gain])
def test_weights_of_another_shape_are_refused_by_their_folder_and_tensor(damaged, name, change):
    spec = damaged(name, change)
    with pytest.raises(SetupError, match=r"damaged \(.*: the checkpoint (lacks|has) "):
        worker(spec)


@pytest.mark.parametrize("name", ["clip-image", "clip-text", "dino"])
@pytest.mark.parametrize("kind", ["cut", "empty", "pickle", "folder", "pipe", "text", "nested"])
def test_weights_that_are_no_safetensors_are_refused_before_a_worker_starts(damaged, name, kind):
    spec = damaged(name, lambda tensors: None)
    path = Path(spec.partition(":")[2]) / "model.safetensors"
    data = path.read_bytes()
    path.unlink()
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "pickle":
        torch.save({}, path.with_name("pytorch_model.bin"))
    else:
        nested = (100_000).to_bytes(8, "little") + b"[" * 100_000
        texts = {
            "cut": data[:-100],
            "empty": b"",
            "text": b"version https://git-lfs",
            "nested": nested,
        }
        path.write_bytes(texts[kind])
    with pytest.raises(UsageError, match=r"damaged/.*, expected|damaged/.* expected .* damaged$"):
        worker(spec)
