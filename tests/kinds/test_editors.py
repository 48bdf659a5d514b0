"""Controls, finished folders, diffusers arguments, and the repaired image positions of Qwen
pipelines.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from later import Later
from PIL import Image

from pytest_imgedit.core.errors import ImageError, SettingError, SetupError, UsageError
from pytest_imgedit.core.images import FileImage
from pytest_imgedit.core.pairs import EditPair
from pytest_imgedit.core.requests import EditRequest, job_seed
from pytest_imgedit.kinds.base import Site
from pytest_imgedit.kinds.diffusers import DiffusersEditor
from pytest_imgedit.kinds.folder import Pictures, check_pattern, find_images
from pytest_imgedit.kinds.pipeline_arguments import call_arguments, call_signature, check_arguments
from pytest_imgedit.kinds.registry import make_model

torch = Later("torch")
diffusers = Later("diffusers")

PHOTO = Image.effect_noise((48, 32), 60).convert("RGB")


def request(**values):
    return EditRequest(
        **{
            "pair_id": "a",
            "category": "physics",
            "instruction": "x",
            "source": PHOTO,
            "seed": 5,
            **values,
        }
    )


def pair(**values):
    return EditPair(
        **{
            "id": "a",
            "category": "physics",
            "instruction": "x",
            "source": FileImage(Path("a.png")),
            **values,
        }
    )


def editor(spec):
    return make_model("editor", spec, {}).target.build("cpu", {})


def test_identity_blank_and_noise():
    assert editor("identity").edit(request()) is PHOTO
    assert editor("blank").edit(request()).getcolors() == [(48 * 32, (128, 128, 128))]
    first, again, other = (
        np.asarray(editor("noise").edit(request(seed=seed))) for seed in (1, 1, 2)
    )
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize("spec", ["blend", "damaged", "oracle", "shuffled"])
def test_controls_that_need_a_reference_say_so(spec):
    with pytest.raises(ValueError, match="no reference image"):
        editor(spec).edit(request())


@pytest.mark.parametrize("spec", ["oracle", "shuffled"])
def test_reference_controls_return_what_they_are_shown(spec):
    assert editor(spec).edit(request(reference=PHOTO)) is PHOTO


def test_a_blend_is_half_done():
    after = Image.new("RGB", (24, 16), (200, 100, 0))
    before = Image.new("RGB", (48, 32), (100, 100, 100))
    half = editor("blend").edit(request(source=before, reference=after))
    assert half.size == after.size
    assert half.getcolors() == [(24 * 16, (150, 100, 50))]


def test_a_damaged_edit_is_damaged_beside_the_change():
    after = Image.new("RGB", (64, 64), "white")
    after.paste("red", (0, 0, 20, 20))
    before = Image.new("RGB", (128, 128), "white")
    damaged = np.asarray(editor("damaged").edit(request(source=before, reference=after)))
    changed = (damaged != np.asarray(after)).any(axis=-1)
    assert changed.mean() == 0.25
    assert not changed[:20, :20].any()


def test_folder_prefers_the_category_folder(tmp_path):
    (tmp_path / "physics").mkdir()
    Image.new("RGB", (9, 9), "red").save(tmp_path / "physics" / "a.png")
    Image.new("RGB", (9, 9), "blue").save(tmp_path / "a.png")
    assert Pictures(str(tmp_path)).of(pair()) == tmp_path / "physics" / "a.png"
    assert Pictures(str(tmp_path)).of(pair(category="social")) == tmp_path / "a.png"
    assert Pictures(str(tmp_path)).of(pair(id="b")) is None


def test_folder_finds_images_by_the_suites_own_names(tmp_path):
    (tmp_path / "物理").mkdir()
    for name in ("物理/00000_物理_medium.png", "x.jpg"):
        Image.new("RGB", (9, 9), "red").save(tmp_path / name)
    theirs = pair(id="00000-medium", own_id="00000_物理_medium")
    for names in (
        {"own_id": "i" * 300},
        {"own_category": "c" * 300},
        {"category": "c" * 300},
        {"own_id": "a\0"},
    ):
        assert Pictures(str(tmp_path)).of(pair(**names)) == Pictures(str(tmp_path)).of(pair())
    assert Pictures(str(tmp_path)).of(pair(id="i" * 300)) is None
    assert Pictures(str(tmp_path)).of(theirs) == tmp_path / "物理" / "00000_物理_medium.png"
    assert Pictures(str(tmp_path)).of(pair(own_id="../secret")) is None


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        ("{category}/{id}.jpg", "物理/a.jpg"),
        ("{id}_{difficulty}.png", "a_hard.png"),
        ("{model}/{id}.png", "ours/a.png"),
    ],
)
def test_folder_finds_images_by_a_pattern(tmp_path, pattern, name):
    if name:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        Image.new("RGB", (9, 9), "red").save(tmp_path / name)
    found = Pictures(f"{tmp_path}?{pattern}").of(pair(difficulty="hard", fields={"model": "ours"}))
    assert found == (tmp_path / name if name else None)


@pytest.mark.parametrize("name", ["a.png", "a.PNG", "a.jpg", "a.JPG", "a.Jpeg", "a.webp", "a.WEBP"])
@pytest.mark.parametrize("pattern", ["", "?{id}", "?{category}/{id}"])
def test_without_a_suffix_the_known_ones_are_tried_in_any_case(tmp_path, pattern, name):
    folder = tmp_path / ("physics" if "category" in pattern else "")
    folder.mkdir(exist_ok=True)
    (folder / name).write_bytes(b"")
    (folder / "a.txt").write_bytes(b"")
    (folder / "ab.png").write_bytes(b"")
    assert Pictures(f"{tmp_path}{pattern}").of(pair()) == folder / name


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        ("{id}.v2", "a.v2.jpeg"),
        ("{file}", "a.png"),
        ("{file}", "a.png.webp"),
        ("{id}.{kind}", "a.JPG"),
        ("{id}", "a"),
        ("{id}.bmp", "a.bmp"),
    ],
)
def test_a_pattern_may_end_in_a_field_or_in_another_suffix(tmp_path, pattern, name):
    (tmp_path / name).write_bytes(b"")
    asked = pair(fields={"file": "a.png", "kind": "JPG"})
    assert Pictures(f"{tmp_path}?{pattern}").of(asked) == tmp_path / name


def test_a_pattern_with_a_suffix_takes_that_alone(tmp_path):
    for name in ("a.png", "a.jpg", "a.PNG"):
        (tmp_path / name).write_bytes(b"")
    assert Pictures(f"{tmp_path}?{{id}}.png").of(pair()) == tmp_path / "a.png"
    assert Pictures(f"{tmp_path}?{{id}}.webp").of(pair()) is None


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("", ("a.jpg", "a.png")),
        ("?{id}", ("a.PNG", "a.png")),
        ("", ("physics/a.jpeg", "physics/a.webp")),
        ("", ("physics/a.png", "物理/a.png")),
        ("?{category}/{id}.png", ("physics/a.png", "物理/a.png")),
    ],
)
def test_two_finished_images_of_a_pair_are_refused_by_name(tmp_path, pattern, names):
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    with pytest.raises(UsageError) as error:
        find_images(f"{tmp_path}{pattern}", [pair(id="b"), pair()])
    first, second = (tmp_path / name for name in names)
    assert str(error.value).startswith(
        f"editor folder: pair 'a' has 2 finished images, {first}, {second}, expected one: "
    )


def test_two_names_of_one_finished_image_are_no_two_images(tmp_path):
    (tmp_path / "physics").mkdir()
    (tmp_path / "physics" / "a.png").write_bytes(b"")
    (tmp_path / "物理").symlink_to("physics")
    (tmp_path / "physics" / "a.jpg").symlink_to("a.png")
    assert find_images(str(tmp_path), [pair()]).by_pair["a"].name in ("a.jpg", "a.png")


@pytest.mark.parametrize(
    ("pattern", "names", "line"),
    [
        ("", (), "holds no pictures, expected {category}/{id}.png or {id}.png"),
        ("?{id}", ("a.txt", ".b.png"), "holds no pictures, expected {id}.png"),
        (
            "?{id}.jpg",
            ("a.jpg", "b.jpg"),
            "holds 2 pictures, 2 of them match ids; expected {id}.jpg",
        ),
        (
            "?{id}.png",
            ("a.png", "b.PNG", "c.png"),
            "holds 3 pictures, 1 of them matches an id, 2 match none: b.PNG, c.png; "
            "expected {id}.png",
        ),
        (
            "?{id}",
            ("a.png", "b.PNG", "u.png", "v.png", "x.png", "y.jpg"),
            "holds 6 pictures, 2 of them match ids, 4 match none: u.png, v.png, x.png and 1 more; "
            "expected {id}.png",
        ),
    ],
)
def test_a_summary_counts_the_pictures_that_match(tmp_path, pattern, names, line):
    for name in names:
        (tmp_path / name).write_bytes(b"")
    found = find_images(f"{tmp_path}{pattern}", [pair(), pair(id="b")])
    assert found.summary == f"{tmp_path} {line}"


@pytest.mark.parametrize(
    "pattern",
    [
        "{id",
        "plain.png",
        "../{id}.png",
        "/{id}.png",
        "{0}.png",
        "{id.x}.png",
        "{id:04d}.png",
        "{id!r}.png",
    ],
)
def test_patterns_that_lead_nowhere_are_refused(pattern):
    with pytest.raises(UsageError, match="pattern"):
        check_pattern(pattern)


def test_an_image_that_would_be_that_of_two_pairs_is_that_of_none(tmp_path):
    Image.new("RGB", (9, 9), "red").save(tmp_path / "a.png")
    pairs = [pair(id="p-a", own_id="a"), pair(id="q-a", own_id="a"), pair(id="b")]
    found = find_images(str(tmp_path), pairs).by_pair
    assert (
        found["p-a"]
        == f"{tmp_path}/a.png would be the finished image of 2 pairs, expected one for each"
    )
    assert found["q-a"] == found["p-a"]
    assert found["b"] == f"no finished image of physics/b in {tmp_path}"


def test_a_pattern_with_a_field_that_no_pair_has_is_refused(tmp_path):
    with pytest.raises(
        UsageError, match=r"no pair has a field 'catgory', expected .*; did you mean 'category'\?"
    ):
        find_images(f"{tmp_path}?{{catgory}}/{{id}}.png", [pair()])


def test_folder_hands_over_what_the_harness_found():
    folder = editor("folder:anywhere")
    image = Image.new("RGB", (9, 9), "red")
    assert folder.edit(request(reference=image)) is image
    with pytest.raises(ImageError, match="has finished images of the suite's pairs only"):
        folder.edit(request())


def test_unknown_parameter_is_a_setup_error():
    with pytest.raises(SetupError, match="unexpected keyword argument 'strength'"):
        make_model("editor", "identity", {}).target.build("cpu", {"strength": 3})


def test_seed_depends_on_seed_and_pair_alone():
    assert job_seed(0, "a") == job_seed(0, "a")
    assert len({job_seed(seed, name) for seed in range(5) for name in "abcde"}) == 25
    assert all(0 <= job_seed(seed, "a") < 2**63 for seed in range(50))


@pytest.mark.parametrize(
    ("name", "some"),
    [
        (
            "QwenImageEditPipeline",
            {"true_cfg_scale", "negative_prompt", "num_inference_steps", "height"},
        ),
        ("QwenImageEditPlusPipeline", {"true_cfg_scale", "image"}),
        ("FluxKontextPipeline", {"guidance_scale", "image"}),
        ("StableDiffusionInstructPix2PixPipeline", {"image_guidance_scale", "image"}),
    ],
)
@pytest.mark.everyday
def test_signature_read_from_source_is_the_real_one(name, some):
    import inspect

    found = set(call_signature(name).annotations)
    assert some <= found
    assert found == set(inspect.signature(getattr(diffusers, name).__call__).parameters) - {
        "self",
        "kwargs",
    }


def test_arguments_are_checked_without_loading(tiny):
    model = str(tiny("qwen-image-edit"))

    def refused(**params):
        with pytest.raises(SettingError) as caught:
            check_arguments(model, params, params)
        return caught.value.key, str(caught.value)

    check_arguments(
        model, {"num_inference_steps": 3, "dtype": "float32"}, {"num_inference_steps": 3}
    )
    wrong_name = "no such argument is taken; did you mean 'num_inference_steps'?"
    assert refused(num_inference_step=3) == ("num_inference_step", wrong_name)
    assert refused(num_inference_steps="3") == ("num_inference_steps", "found '3', expected int")
    assert refused(num_inference_steps=True)[0] == "num_inference_steps"
    check_arguments(model, {}, {"true_cfg_scale": 4, "height": 64, "width": 64})
    assert refused(height=64) == ("height", "expected editor.width beside it")
    assert refused(prompt="x")[0] == "prompt"
    check_arguments("some/hub-model-that-is-not-here", {}, {"anything": 1})


@pytest.mark.everyday
def test_text_to_image_pipeline_is_refused(tmp_path):
    (tmp_path / "model_index.json").write_text('{"_class_name": "FluxPipeline"}')
    with pytest.raises(UsageError, match="FluxPipeline is no instruction editor"):
        check_arguments(str(tmp_path), {}, {})


def test_blank_negative_prompt_is_given_only_where_guidance_needs_it(tiny):
    qwen = DiffusersEditor(str(tiny("qwen-image-edit")), device="cpu")
    assert qwen.call == {"negative_prompt": " "}
    assert call_arguments(qwen.pipeline, {"true_cfg_scale": 1.0}) == {"true_cfg_scale": 1.0}
    assert call_arguments(qwen.pipeline, {"negative_prompt": "blur"}) == {"negative_prompt": "blur"}
    pix2pix = DiffusersEditor(str(tiny("instruct-pix2pix")), device="cpu", image_guidance_scale=1.2)
    assert pix2pix.call == {"image_guidance_scale": 1.2}
    with pytest.raises(SetupError, match=r"editor\.strength: .* takes no such argument"):
        call_arguments(qwen.pipeline, {"strength": 1})


@pytest.mark.parametrize("name", ["qwen-image-edit", "qwen-image-edit-plus"])
def test_qwen_text_encoder_gets_image_positions_as_in_an_explicit_call(tiny, name):
    pipeline = DiffusersEditor(str(tiny(name)), device="cpu").pipeline
    image = [PHOTO] if name.endswith("plus") else PHOTO
    embeds, _ = pipeline.encode_prompt("make it snow", image=image)

    intro = "Picture 1: " if name.endswith("plus") else ""
    template = pipeline.prompt_template_encode
    text = template.format(
        f"{intro}<|vision_start|><|image_pad|><|vision_end|>make it snow"
        if intro
        else "make it snow"
    )
    inputs = pipeline.processor(text=[text], images=[PHOTO], padding=True, return_tensors="pt")
    kinds = inputs["mm_token_type_ids"]
    assert kinds.sum() > 0
    encoder = pipeline.text_encoder
    with torch.no_grad():
        explicit = encoder(**inputs, output_hidden_states=True).hidden_states[-1]
        encoder._forward_pre_hooks.clear()
        without = encoder(
            **{**inputs, "mm_token_type_ids": None}, output_hidden_states=True
        ).hidden_states[-1]
    start = pipeline.prompt_template_encode_start_idx
    assert torch.allclose(embeds, explicit[:, start:], atol=1e-6)
    assert not torch.allclose(explicit, without, atol=1e-5)


def test_same_seed_gives_the_same_edit_and_another_seed_another(tiny):
    model = DiffusersEditor(str(tiny("instruct-pix2pix")), device="cpu", num_inference_steps=2)
    first, again, other = (np.asarray(model.edit(request(seed=seed))) for seed in (1, 1, 2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_deterministic_switches_reduced_precision_off(tiny):
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = True
    DiffusersEditor(str(tiny("instruct-pix2pix")), device="cpu", deterministic=False)
    assert torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction
    DiffusersEditor(str(tiny("instruct-pix2pix")), device="cpu")
    assert not torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction
    assert not torch.backends.cuda.matmul.allow_tf32


@pytest.mark.parametrize(
    ("spec", "params", "name"),
    [
        ("qwen-vl:m/x", {"dtype": "fp8"}, "dtype"),
        ("qwen-vl:m/x", {"max_new_tokens": 0}, "max_new_tokens"),
        ("qwen-vl:m/x", {"attention": "foo"}, "attention"),
        ("qwen-vl:m/x", {"device": "cuda"}, "device"),
        ("qwen-vl:m/x", {"deterministic": 1}, "deterministic"),
        ("reference", {"x": 1}, "x"),
    ],
)
def test_parameters_of_judges_are_checked_before_anything_loads(spec, params, name):
    with pytest.raises(SettingError) as caught:
        make_model("judge", spec, params).check(Site())
    assert caught.value.key == name


def scripted(subject, monkeypatch, *images):
    """Have the trials of an editor give these values in turn."""
    values = iter(images)
    monkeypatch.setattr(subject, "_values", lambda *_: torch.tensor(next(values)))
    return subject


def test_an_editor_that_gives_two_images_for_one_request_does_not_load(tiny, monkeypatch):
    subject = DiffusersEditor(str(tiny("instruct-pix2pix")), device="cpu")
    scripted(subject, monkeypatch, [0.0, 0, 0, 0], [0.0, 0, 0, 1], [0.0, 0, 1, 1])
    with pytest.raises(
        SetupError,
        match=r"gives different images for one source, instruction and seed \(25.0% of the values "
        r"differ\): its edits would depend on chance",
    ):
        subject.self_check()
    careless = DiffusersEditor(str(tiny("instruct-pix2pix")), device="cpu", deterministic=False)
    assert scripted(careless, monkeypatch).self_check() is None


def test_a_first_edit_that_differs_from_the_later_ones_is_discarded(tiny, monkeypatch):
    subject = DiffusersEditor(str(tiny("instruct-pix2pix")), device="cpu")
    usual = scripted(subject, monkeypatch, [0.5, 1.0], [0.5, 1.0]).self_check()
    assert scripted(subject, monkeypatch, [0.0, 1.0], [0.5, 1.0], [0.5, 1.0]).self_check() == usual
    other = scripted(subject, monkeypatch, [0.5, 0.9], [0.5, 0.9]).self_check()
    assert len({usual, other}) == 2


def test_two_processes_of_one_model_have_one_probe_and_other_parameters_another(tiny):
    folder = str(tiny("instruct-pix2pix"))
    probes = [
        DiffusersEditor(folder, device="cpu", guidance_scale=scale).self_check()
        for scale in (5.0, 5.0, 9.0)
    ]
    assert probes[0] == probes[1] != probes[2]


def test_an_editor_that_cannot_edit_a_small_image_does_not_load(tiny, monkeypatch):
    subject = DiffusersEditor(str(tiny("instruct-pix2pix")), device="cpu")

    def broken(*_, **__):
        raise KeyError("no such block")

    monkeypatch.setattr(subject, "run", broken)
    with pytest.raises(SetupError, match=r"cannot edit a small image: KeyError: .*no such block"):
        subject.self_check()
