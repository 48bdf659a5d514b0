"""What fits where, on machines and with checkpoints that are made up."""

from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import pytest

from pytest_imgedit.cli import doctor
from pytest_imgedit.config.settings import Settings
from pytest_imgedit.core.errors import UsageError
from pytest_imgedit.kinds import diffusers
from pytest_imgedit.kinds.base import GIB, Model
from pytest_imgedit.kinds.diffusers import Diffusers
from pytest_imgedit.kinds.qwen_vl import QwenVL
from pytest_imgedit.kinds.registry import CustomEditor, make_model
from pytest_imgedit.run.placement import Peak, groups_of, place, settle
from pytest_imgedit.workers.gpus import Gpu
from pytest_imgedit.workers.hardware import Hardware, HostHardware


class Sized(Diffusers):
    """An editor of 54 GiB, 39 of which are its transformer."""

    editing: ClassVar[dict[str, int]] = {}

    @property
    def checkpoint(self):
        return SimpleNamespace(
            quantizations=[], model="model", folder=Path("model"), local_folder=Path("model")
        )

    def component_bytes(self):
        return {name: gib * GIB for name, gib in self.editing.items()}


class SizedJudge(QwenVL):
    """A judge of 58 GiB."""

    judging: ClassVar[int] = 58

    def component_bytes(self):
        return {"model": self.judging * GIB}


@pytest.fixture
def machine(monkeypatch):
    """Make up a machine and sizes: `machine(gpus=2, total=80, edit=54, judge=58, held=0)`."""

    def put(
        gpus=1,
        total=80.0,
        tells=True,
        memory=900,
        pipeline="QwenImageEditPipeline",
        **sizes,
    ):
        given = {"edit": 54, "judge": 58, "held": 0.0, "largest": 39, **sizes}
        edit, judge, held, largest = (given[name] for name in ("edit", "judge", "held", "largest"))
        names = tuple(str(n) for n in range(gpus))
        monkeypatch.setattr(
            Sized, "editing", {"transformer": largest, "text_encoder": edit - largest}
        )
        monkeypatch.setattr(SizedJudge, "judging", judge)
        monkeypatch.setattr(diffusers, "pipeline_class", lambda model: pipeline)
        known = tuple(
            Gpu(
                name=name,
                product="X",
                free_gib=float(total - held),
                total_gib=float(total),
                held_gib=held,
                holders="123",
            )
            for name in names
            if tells
        )
        return Hardware((HostHardware(gpus=names, known=known, memory=memory * GIB),))

    return put


def editor(gpus=1, **params):
    return Sized("diffusers:a/b", "a/b", params, gpus)


def judge(gpus=1, **params):
    return SizedJudge("qwen-vl:c/d", "c/d", params, gpus)


def both(gpus=1):
    return [editor(gpus), judge()]


def test_models_that_fit_together_stay(machine):
    here = machine(total=140)
    found = place(both(), here, "auto")
    assert found.mode == "resident"
    plan = (
        "plan: edit 54.0 GiB and judge 58.0 GiB on GPU 0 140.0 of 140.0 GiB free: both stay, "
        "no swap"
    )
    assert found.lines == (plan,)
    assert place(both(), here, "swap").mode == "swap"


def test_models_without_weights_have_no_place_on_gpus(machine):
    assert place([make_model("metric", "psnr", {})], machine(total=140), "auto").lines == ()


def test_models_that_do_not_fit_together_follow_each_other(machine):
    here = machine(total=80)
    found = place(both(), here, "auto")
    assert found.mode == "swap"
    assert found.lines[-1].endswith(
        "one after the other, each on all GPUs: together they would take 130.8 GiB of 80.0 GiB"
    )
    with pytest.raises(
        UsageError, match=r"workers.placement.*do not fit together: 130.8 GiB.*80.0 GiB free"
    ):
        place(both(), here, "resident")


def test_an_editor_that_needs_no_memory_leaves_it_to_the_judge(machine):
    here = machine(total=80)
    assert place([make_model("editor", "identity", {}), judge()], here, "auto").mode == "resident"
    own = CustomEditor("tests.fakes:Hangs")
    assert place([own, judge()], here, "auto").mode == "swap"
    assert place([own, judge()], here, "resident").mode == "resident"


@pytest.mark.parametrize(
    ("gpus", "total", "hint"),
    [
        (2, 48.0, "--imgedit-gpus-per-worker=2 would fit"),
        (1, 48.0, 'editor.offload="group" needs least'),
        (3, 48.0, "--imgedit-gpus-per-worker=3 would fit"),
        (2, 24.0, 'editor.offload="group" needs least'),
    ],
)
def test_what_does_not_fit_is_refused_with_what_would(machine, gpus, total, hint):
    here = machine(gpus=gpus, total=total)
    with pytest.raises(UsageError) as caught:
        place([editor()], here, "auto")
    assert str(caught.value).endswith(hint)
    assert "\n" not in str(caught.value)


def test_what_is_named_would_fit_into_what_is_free(machine):
    here = machine(gpus=2, total=80, held=55.0)
    with pytest.raises(
        UsageError, match=r'; a GPU of its own would hold them, editor.offload="group" needs least$'
    ):
        place([editor()], here, "auto")
    with pytest.raises(UsageError, match=r"; a GPU of its own would hold them$"):
        place([judge()], here, "auto")


def test_groups_of_gpus_share_what_their_models_need(machine):
    with pytest.raises(UsageError, match=r"do not fit together: 78\.5 GiB a GPU"):
        place(both(2), machine(gpus=4, total=48, judge=40), "resident")
    here = machine(gpus=4, total=140)
    assert place(both(2), here, "resident").mode == "resident"
    assert place(both(2), here, "auto").mode == "swap"


@pytest.mark.parametrize(
    ("strategy", "gib"), [("full", 54.0), ("context", 108.0), ("grad_op", 162.0)]
)
def test_ranks_hold_parts_or_all_or_both(machine, strategy, gib):
    found = place([editor(2, shard={"strategy": strategy})], machine(gpus=2, total=140), "auto")
    assert found.lines[-1].startswith(f"plan: edit {gib} GiB on GPU 0")


@pytest.mark.parametrize(
    ("total", "params", "fits"),
    [
        (48, {"shard": {"strategy": "full"}}, True),
        (48, {"shard": {"strategy": "context"}}, False),
        (48, {"shard": {"strategy": "grad_op"}}, False),
        (24, {"shard": {"strategy": "full"}}, False),
        (24, {"shard": {"cpu_offload": True}}, True),
    ],
)
def test_doctor_says_of_groups_what_a_run_would(machine, monkeypatch, total, params, fits):
    monkeypatch.setattr(doctor, "_host_memory", lambda: 900.0)
    problems = []
    found = doctor._model(editor(2, **params), Settings(), machine(gpus=2, total=total), problems)
    assert (found["fits"], found["weights_gib"], len(problems)) == (fits, 54.0, 0 if fits else 1)


LEAST = 'editor.shard.strategy="full" with editor.shard.cpu_offload=true needs least'


@pytest.mark.parametrize(
    ("params", "gib", "hint"),
    [
        ({"shard": {"strategy": "context"}}, 108.0, 'editor.shard.strategy="full" needs less'),
        (
            {"shard": {"text_encoder": "replicate"}},
            69.0,
            'editor.shard.text_encoder="shard" needs less',
        ),
        (
            {"shard": {"strategy": "grad_op", "text_encoder": "replicate"}},
            147.0,
            'strategy="full" needs less',
        ),
        ({}, 54.0, LEAST),
        ({"shard": {"strategy": "none"}}, 54.0, LEAST),
    ],
)
def test_what_a_group_cannot_hold_is_refused_with_what_needs_less(machine, params, gib, hint):
    here = machine(gpus=2, total=24)
    with pytest.raises(UsageError) as caught:
        place([editor(2, **params)], here, "auto")
    assert str(caught.value).endswith(hint)
    assert f"{gib} GiB" in str(caught.value)


def test_where_no_component_fits_blocks_need_least(machine):
    here = machine(gpus=2, total=24)
    with pytest.raises(UsageError, match=r'39.0 GiB.*; editor.offload="group" needs least$'):
        place([editor(offload="model")], here, "auto")


def test_offload_needs_room_for_the_largest_component_only(machine):
    found = place([editor(offload="model")], machine(total=48, largest=39), "auto")
    assert found.lines[-1].startswith("plan: edit 39.0 GiB at a time, offloaded on GPU 0")


def test_offload_by_blocks_needs_no_room_that_is_known_beforehand(machine):
    found = place([editor(offload="group")], machine(total=8, largest=39), "auto")
    assert found.lines[-1].startswith("plan: edit one block at a time, offloaded on GPU 0")


def hosts(**gpus):
    """Hosts `name=(names of its GPUs, those of which tell their memory)` of one machine with 128
    GiB.
    """
    made = [
        HostHardware(
            name=name,
            machine="m",
            gpus=tuple(names),
            known=tuple(
                Gpu(name=gpu, product="X", free_gib=80.0, total_gib=80.0, host=name) for gpu in tell
            ),
            memory=128 * GIB,
        )
        for name, (names, tell) in gpus.items()
    ]
    return Hardware(tuple(made), remote=True)


def test_workers_that_offload_must_fit_into_host_memory(machine):
    here = machine(gpus=4, total=24, memory=128)
    says = r"^diffusers:a/b: 4 workers that offload .* keep 54.0 GiB of weights each in host memory, .* at most 128.0"
    with pytest.raises(UsageError, match=says):
        place([editor(offload="group")], here, "auto")
    place([editor(offload="group")], hosts(a=(["0", "1"], ["0", "1"])), "auto")
    with pytest.raises(
        UsageError, match=r"3 workers that offload .* on a, b; 2 GPUs \(--imgedit-gpus\) would fit$"
    ):
        place([editor(offload="model")], hosts(a=(["0", "1"], ["0"]), b=(["0"], [])), "auto")
    here = machine(gpus=4, total=24, memory=128, edit=130)
    with pytest.raises(
        UsageError, match=r"2 workers that offload .* 130.0 GiB .* which is available$"
    ):
        place([editor(2, shard={"cpu_offload": True})], here, "auto")
    assert place([editor(offload="group")], machine(gpus=4, total=24, memory=0), "auto").lines


def test_an_editor_offloads_where_it_fits_no_other_way(machine):
    here = machine(total=48)
    assert settle(editor(), here).params == {"offload": "group"}
    assert settle(editor(offload="none", compile=False), here).params["offload"] == "none"
    assert "offload" not in settle(editor(), machine(total=80)).params


def test_busy_gpus_are_named(machine):
    found = place([editor()], machine(total=140, held=12.0), "auto")
    assert found.lines[0] == "warning: GPU 0 is busy: 12.0 GiB held by 123"


def test_without_gpus_there_is_nothing_to_place(machine):
    assert place(both(), machine(gpus=0), "auto").mode == "cpu"


def test_what_a_server_computes_overlaps_anything(machine):
    served = make_model("judge", "openai:http://h/v1#m", {})
    assert place([editor(), served], machine(total=80), "auto").mode == "resident"
    assert place([editor(), served], machine(gpus=0), "auto").mode == "resident"
    assert place([editor(), served], machine(total=80), "swap").mode == "swap"
    assert groups_of(served, machine(gpus=2)) == []


def test_gpus_that_do_not_tell_their_memory_are_taken_as_they_are(machine):
    here = machine(memory=50, tells=False)
    found = place(both(), here, "auto")
    sizes = "plan: edit 54.0 GiB and judge 58.0 GiB on GPUs that do not tell their memory"
    plan = f"{sizes}: one after the other, whether both fit is not known"
    assert (found.mode, found.lines) == ("swap", (plan,))
    assert place(both(), here, "resident").mode == "resident"
    with pytest.raises(UsageError, match="1 workers that offload"):
        place([editor(offload="model")], here, "auto")


def test_a_host_without_gpus_beside_others_takes_no_part_and_is_named(machine):
    machine()
    there = hosts(a=(["0", "1"], ["0", "1"]), b=([], []))
    assert groups_of(editor(), there) == [("a", ("0",)), ("a", ("1",))]
    (first, *_) = place([editor()], there, "auto").lines
    assert first == "warning: b has no GPU, beside hosts that have: it takes no part"


def test_a_gpu_of_a_host_that_does_not_tell_its_memory_is_used(machine):
    machine()
    there = hosts(a=(["0", "1"], ["1"]), b=(["0"], []))
    assert groups_of(editor(), there) == [("a", ("0",)), ("b", ("0",)), ("a", ("1",))]
    assert len(place([editor()], there, "auto").lines) == 1


def test_compiling_is_decided_by_the_model_and_the_gpu(machine):
    auto = editor(num_inference_steps=1)
    for gpus in (1, 2):
        assert settle(auto, machine(gpus=gpus)).params["compile"] == "if possible"
    here = machine(gpus=2)
    assert settle(editor(compile=False), here).params["compile"] is False
    assert settle(editor(compile=True), here).params["compile"] is True
    assert "compile" not in settle(auto, machine(gpus=0)).params
    assert "compile" not in settle(editor(gpus=2), here).params
    assert "compile" not in settle(auto, machine(gpus=2, edit=1, largest=1)).params
    unproven = machine(pipeline="OmniGenPipeline")
    other = editor(num_inference_steps=1)
    assert "compile" not in settle(other, unproven).params
    assert settle(make_model("editor", "identity", {}), here).params == {}


@pytest.mark.parametrize(
    ("params", "named"),
    [
        ({"quantize": "fp8", "compile": True}, ["quantize=fp8"]),
        ({"attention_backend": "sage_hub"}, ["attention_backend=sage_hub"]),
        ({"attention_backend": "_native_cudnn"}, []),
    ],
)
def test_lossy_parameters_are_named(params, named):
    assert editor(**params).lossy == tuple(named)


def test_what_a_server_computes_takes_no_memory_whichever_package_it_is_of(machine):
    class Served(Model):
        role, name, loads, is_served = "judge", "served", "a:B", True

    found = place([editor(), Served("served")], machine(), "auto")
    assert "judge" not in found.lines[-1]
    assert Served("served").memory().weights == 0


def test_what_an_earlier_run_took_decides_in_place_of_an_estimate(machine):
    models = both()
    tight = machine(total=125)
    assert place(models, tight, "auto").mode == "swap"
    known = {"editor": Peak(56 * GIB, 8 * GIB, "r1", 1)}
    placement = place(models, tight, "auto", known)
    assert placement.mode == "resident"
    assert "edit 54.0 GiB (at most 56.0 GiB, host 8.0 GiB in run r1)" in placement.lines[-1]
    assert (
        place(models, machine(total=139), "auto", {"editor": Peak(80 * GIB, 8 * GIB, "r1", 1)}).mode
        == "swap"
    )


def test_what_batches_took_is_told_and_decides_nothing(machine):
    models = both()
    placement = place(
        models, machine(total=139), "auto", {"editor": Peak(100 * GIB, 8 * GIB, "r1", 8)}
    )
    assert placement.mode == "resident"
    assert "at most 100.0 GiB, host 8.0 GiB in run r1" in placement.lines[-1]


def test_workers_that_took_more_host_memory_than_there_is_are_a_warning(machine):
    peaks = {"editor": Peak(20 * GIB, 40 * GIB, "r1", 1)}
    (line,) = [
        line
        for line in place([editor()], machine(gpus=4, memory=128), "auto", peaks).lines
        if line.startswith("warning")
    ]
    assert line == (
        "warning: 4 edit workers of diffusers:a/b took up to 40.0 GiB of host memory each in run "
        "r1, 128.0 GiB is available; fewer GPUs (--imgedit-gpus) take less"
    )
    for gpus, memory in ((3, 128), (4, 0)):
        lines = place([editor()], machine(gpus=gpus, memory=memory), "auto", peaks).lines
        assert not any(line.startswith("warning") for line in lines)
