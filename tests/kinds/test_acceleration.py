"""What makes a pipeline faster changes its images by nothing, by rounding, or is named as lossy."""

import numpy as np
import pytest
from later import Later
from PIL import Image
from traced_blocks import trace_blocks

from pytest_imgedit.core.errors import SettingError, SetupError
from pytest_imgedit.core.requests import EditRequest
from pytest_imgedit.kinds.base import Site
from pytest_imgedit.kinds.diffusers import DiffusersEditor
from pytest_imgedit.kinds.identity import identify
from pytest_imgedit.kinds.registry import make_model

torch = Later("torch")
diffusers = Later("diffusers")
acceleration = Later("pytest_imgedit.kinds.compute.acceleration")

SMALL = {"num_inference_steps": 2, "true_cfg_scale": 4.0, "height": 64, "width": 64}
#: Small edits of their sources' shapes.
ANY_SHAPE = {"num_inference_steps": 2, "true_cfg_scale": 4.0, "area": 4096}


def photo(seed):
    rough = np.random.default_rng(seed).integers(0, 256, (3, 4, 3), dtype=np.uint8)
    return Image.fromarray(rough).resize((64, 48), Image.Resampling.NEAREST)


def edit(editor, source, seed=5, instruction="make it snow"):
    return np.asarray(editor.edit(EditRequest("a", "physics", instruction, source, seed)))


def values(editor, source, seed=5):
    """Return an edit before it is rounded to 8 bits, in which every difference shows."""
    return editor.adapter.edited(
        editor.run(EditRequest("a", "physics", "make it snow", source, seed), "pt")
    )


@pytest.mark.full
def test_negative_prompt_is_encoded_once_a_source_and_changes_nothing(tiny, monkeypatch):
    folder = str(tiny("qwen-image-edit"))
    editor, plain = (DiffusersEditor(folder, device="cpu", **SMALL) for _ in range(2))
    plain.pipeline.encode_prompt = type(plain.pipeline).encode_prompt.__get__(plain.pipeline)
    calls = []
    editor.pipeline.text_encoder.register_forward_pre_hook(lambda *_: calls.append(1))
    for source, seed, counted in (
        (photo(1), 1, 2),
        (photo(1), 2, 3),
        (photo(2), 1, 5),
        (photo(1), 3, 6),
    ):
        assert torch.equal(values(editor, source, seed), values(plain, source, seed))
        assert len(calls) == counted
    assert not torch.equal(
        values(plain, photo(1)), values(plain, photo(2))
    )  # images of this editor show their source


@pytest.mark.full
def test_few_sources_are_remembered(tiny, monkeypatch):
    monkeypatch.setattr("pytest_imgedit.kinds.compute.acceleration.REMEMBERED", 1)
    editor = DiffusersEditor(str(tiny("qwen-image-edit")), device="cpu", **SMALL)
    calls = []
    editor.pipeline.text_encoder.register_forward_pre_hook(lambda *_: calls.append(1))
    for seed in (1, 2, 1):
        edit(editor, photo(seed))
    assert len(calls) == 6


@pytest.mark.full
def test_named_attention_backend_is_used_or_refused(tiny):
    folder = str(tiny("qwen-image-edit"))
    native = DiffusersEditor(folder, device="cpu", attention_backend="native", **SMALL)
    plain = DiffusersEditor(folder, device="cpu", **SMALL)
    assert np.array_equal(edit(native, photo(1)), edit(plain, photo(1)))
    with pytest.raises(SetupError, match=r"editor.attention_backend: ValueError: .*wrong"):
        DiffusersEditor(folder, device="cpu", attention_backend="wrong", **SMALL)


@pytest.mark.full
@pytest.mark.parametrize("model", ["qwen-image-edit", "instruct-pix2pix"])
def test_compiling_where_possible_leaves_a_network_without_repeated_blocks_as_it_is(
    tiny, monkeypatch, model
):
    compiled = []
    monkeypatch.setattr(
        diffusers.QwenImageTransformer2DModel,
        "compile_repeated_blocks",
        lambda *_, **__: compiled.append(1),
    )
    DiffusersEditor(str(tiny(model)), device="cpu", compile="if possible")
    assert compiled == [1] * (model == "qwen-image-edit")
    DiffusersEditor(str(tiny(model)), device="cpu", compile="auto")
    DiffusersEditor(str(tiny(model)), device="cpu", compile=False)
    assert len(compiled) <= 1


@pytest.mark.full
def test_an_editor_says_whether_it_is_compiled(tiny, monkeypatch):
    monkeypatch.setattr(
        diffusers.QwenImageTransformer2DModel, "compile_repeated_blocks", lambda *_, **__: None
    )
    assert DiffusersEditor(str(tiny("qwen-image-edit")), device="cpu", compile=True).compiled
    assert not DiffusersEditor(str(tiny("qwen-image-edit")), device="cpu").compiled


def editor_with(tiny, params):
    return make_model("editor", f"diffusers:{tiny('qwen-image-edit')}", params)


def test_what_cannot_be_done_is_named(tiny):
    with pytest.raises(
        SetupError, match=r"editor.attention_backend: ValueError: no attention of a UNet"
    ):
        DiffusersEditor(str(tiny("instruct-pix2pix")), device="cpu", attention_backend="native")
    with pytest.raises(
        SetupError, match=r"editor.quantize: ModuleNotFoundError: No module named 'torchao'"
    ):
        DiffusersEditor(str(tiny("qwen-image-edit")), device="cpu", quantize="fp8", **SMALL)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("compile", "always"),
        ("quantize", "int4"),
        ("offload", 1),
    ],
)
def test_parameters_are_checked_before_anything_loads(tiny, key, value):
    with pytest.raises(SettingError) as caught:
        editor_with(tiny, {key: value}).check(Site())
    assert caught.value.key == key
    editor_with(tiny, {"compile": True, "quantize": None}).check(Site())


@pytest.mark.parametrize(
    ("params", "reason"),
    [
        (
            {"compile": "maybe"},
            "Input should be 'auto' or 'if possible' or Input should be a valid boolean, found "
            "'maybe'",
        ),
        ({"attention_backend": "bogus"}, "found 'bogus', expected one of "),
    ],
)
def test_what_is_wrong_with_a_parameter_is_said(tiny, params, reason):
    with pytest.raises(SettingError) as caught:
        editor_with(tiny, params).check(Site())
    assert str(caught.value).startswith(reason)
    editor_with(tiny, {"attention_backend": "_native_cudnn"}).check(Site())


def test_defaults_that_are_spelled_out_change_nothing(tiny, tmp_path):
    cache = tmp_path / "cache.json"
    spelled = {"compile": "auto", "offload": "auto", "deterministic": True}
    assert identify(editor_with(tiny, spelled), cache) == identify(editor_with(tiny, {}), cache)
    assert identify(editor_with(tiny, {"compile": True}), cache) != identify(
        editor_with(tiny, {}), cache
    )


@pytest.mark.parametrize("model", ["qwen-image-edit", "instruct-pix2pix"])
def test_offload_by_blocks_changes_no_pixel(tiny, model):
    folder = str(tiny(model))
    call = SMALL if model == "qwen-image-edit" else {"num_inference_steps": 2}
    plain = edit(DiffusersEditor(folder, device="cpu", **call), photo(1))
    editor = DiffusersEditor(folder, device="cpu", offload="group", **call)
    assert np.array_equal(edit(editor, photo(1)), plain)
    hooked = [
        module
        for module in editor.pipeline.text_encoder.modules()
        if hasattr(module, "_diffusers_hook")
    ]
    assert len(hooked) > 4


@pytest.fixture
def traced(monkeypatch):
    trace_blocks(monkeypatch, diffusers.QwenImageTransformer2DModel)
    acceleration.compile_anew()
    yield
    acceleration.compile_anew()


def graphs():
    return torch._dynamo.utils.counters["stats"]["unique_graphs"]


@pytest.mark.full
def test_all_blocks_and_sizes_share_one_graph_and_no_edit_compiles(tiny, traced):
    """Takes ten seconds of CPU time, for PyTorch's import and tracing: what it asserts is traced."""
    before = graphs()
    folder = str(tiny("qwen-image-edit"))
    editor = DiffusersEditor(folder, device="cpu", compile=True, **ANY_SHAPE)
    probe = editor.self_check()
    assert graphs() - before == 1
    plain = DiffusersEditor(folder, device="cpu", **ANY_SHAPE)
    assert probe == plain.self_check()
    for source in (photo(1), photo(2).rotate(90, expand=True)):
        assert np.array_equal(edit(editor, source), edit(plain, source))
    assert graphs() - before == 1


@pytest.mark.full
def test_a_block_that_no_graph_takes_runs_without_one(tiny, traced):
    """Takes seven seconds of CPU time, as the one before."""
    folder = str(tiny("qwen-image-edit"))
    editor = DiffusersEditor(folder, device="cpu", compile=True, **ANY_SHAPE)
    editor.self_check()
    block, before = editor.pipeline.transformer.transformer_blocks[0], graphs()
    block.register_buffer("odd", torch.zeros(1))  # no guard knows it
    block.forward = type(block).forward.__get__(block)
    plain = DiffusersEditor(folder, device="cpu", **ANY_SHAPE)
    assert np.array_equal(edit(editor, photo(1)), edit(plain, photo(1)))
    assert graphs() == before


@pytest.mark.full
@pytest.mark.filterwarnings("ignore:Torchinductor does not support code generation for complex")
def test_a_compiled_editor_is_one_in_every_order_of_sizes(tiny, tmp_path, monkeypatch):
    """Runs PyTorch's compiler, which takes half a minute of CPU time: it is the point."""
    edits = []
    for order in ((1, 2), (2, 1)):
        cache = tmp_path / f"cache{order[0]}"
        monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(cache))
        acceleration.compile_anew()
        folder = str(tiny("qwen-image-edit"))
        editor = DiffusersEditor(folder, device="cpu", compile=True, **ANY_SHAPE)
        probe = editor.self_check()
        sources = {1: photo(1), 2: photo(2).rotate(90, expand=True)}
        made = {number: edit(editor, sources[number]).tobytes() for number in order}
        edits.append((probe, made[1], made[2]))
    assert edits[0] == edits[1]
    acceleration.compile_anew()
