"""What fits where, on GPUs of which only the driver's answers are made up."""

from pathlib import Path

import pytest

from pytest_imgedit.cli import doctor
from pytest_imgedit.config import Settings
from pytest_imgedit.errors import UsageError
from pytest_imgedit.models import checkpoint_kinds
from pytest_imgedit.models.checkpoints import Layout
from pytest_imgedit.models.diffusers import Diffusers
from pytest_imgedit.stages import placement
from pytest_imgedit.stages.placement import groups_of, model_of, place, settle_editor
from pytest_imgedit.workers.hosts import Host, Hosts

GIB = 2**30


@pytest.fixture
def machine(monkeypatch):
    """Put GPUs and checkpoints of some size in place: `machine(gpus=2, total=80, edit=54, judge=58, held=0)`."""

    def put(gpus=1, total=80.0, edit=54, judge=58, held=0.0, largest=39, memory=900):
        names = [str(n) for n in range(gpus)]
        sizes = {Layout.PIPELINE: edit, Layout.MODEL: judge}
        found = [
            {
                "name": name,
                "product": "X",
                "free_gib": float(total - held),
                "total_gib": float(total),
                "held_gib": held,
                "holders": "123",
            }
            for name in names
        ]

        monkeypatch.setattr(placement, "choose_gpus", lambda text: names)
        monkeypatch.setattr(placement, "gpu_memory", lambda gpus: found)
        monkeypatch.setattr(placement, "available_memory", lambda: memory * GIB)
        monkeypatch.setattr(checkpoint_kinds, "model_folder", lambda model, layout, **_: Path(layout.value))
        parts = {
            kind: {"transformer": largest * GIB, "text_encoder": (all - largest) * GIB} for kind, all in sizes.items()
        }
        monkeypatch.setattr(checkpoint_kinds, "component_bytes", lambda folder, layout, *_: parts[layout])

    return put


def settings(editor=None, judge=None, **workers):
    return Settings.model_validate(
        {
            "editor": {"spec": "diffusers:a/b", **(editor or {})},
            "judge": {"spec": "qwen-vl:c/d", **(judge or {})},
            "workers": workers,
        }
    )


def placed(wanted, roles, hosts=None):
    return place(wanted, [model_of(wanted, role) for role in roles], hosts)


def test_models_that_fit_together_stay(machine):
    machine(total=140)
    found = placed(settings(), ["editor", "judge"])
    assert found.mode == "resident"
    plan = "plan: edit 54.0 GiB and judge 58.0 GiB on GPU 0 140.0 of 140.0 GiB free: both stay, no swap"
    assert found.lines == (plan,)
    assert placed(settings(placement="swap"), ["editor", "judge"]).mode == "swap"


def test_models_that_do_not_fit_together_follow_each_other(machine):
    machine(total=80)
    found = placed(settings(), ["editor", "judge"])
    assert found.mode == "swap"
    assert found.lines[-1].endswith("one after the other")
    with pytest.raises(UsageError, match=r"workers.placement.*do not fit together: 130.8 GiB.*80.0 GiB free"):
        placed(settings(placement="resident"), ["editor", "judge"])


def test_an_editor_that_needs_no_memory_leaves_it_to_the_judge(machine):
    machine(total=80)
    assert placed(settings({"spec": "identity"}), ["editor", "judge"]).mode == "resident"
    assert placed(settings({"spec": "tests.fakes:Hangs"}), ["editor", "judge"]).mode == "swap"
    assert placed(settings({"spec": "tests.fakes:Hangs"}, placement="resident"), ["editor", "judge"]).mode == "resident"


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
    machine(gpus=gpus, total=total)
    with pytest.raises(UsageError) as caught:
        placed(settings(), ["editor"])
    assert str(caught.value).endswith(hint)
    assert "\n" not in str(caught.value)


def test_what_is_named_would_fit_into_what_is_free(machine):
    machine(gpus=2, total=80, held=55.0)
    with pytest.raises(UsageError, match=r'; a GPU of its own would hold them, editor.offload="group" needs least$'):
        placed(settings(), ["editor"])
    with pytest.raises(UsageError, match=r"; a GPU of its own would hold them$"):
        placed(settings(), ["judge"])


def test_groups_of_gpus_share_what_their_models_need(machine):
    machine(gpus=4, total=48, judge=40)
    both = settings({"spec": "diffusers:a/b"}, gpus_per_worker=2, placement="resident")
    with pytest.raises(UsageError, match=r"do not fit together: 78\.5 GiB a GPU"):
        placed(both, ["editor", "judge"])
    machine(gpus=4, total=140)
    assert placed(both, ["editor", "judge"]).mode == "resident"
    assert placed(settings(gpus_per_worker=2), ["editor", "judge"]).mode == "swap"


@pytest.mark.parametrize(("strategy", "gib"), [("full", 54.0), ("context", 108.0), ("grad_op", 162.0)])
def test_ranks_hold_parts_or_all_or_both(machine, strategy, gib):
    machine(gpus=2, total=140)
    found = placed(settings({"shard": {"strategy": strategy}}, gpus_per_worker=2), ["editor"])
    assert found.lines[-1].startswith(f"plan: edit {gib} GiB on GPU 0")


@pytest.mark.parametrize(
    ("total", "editor", "fits"),
    [
        (48, {"shard": {"strategy": "full"}}, True),
        (48, {"shard": {"strategy": "context"}}, False),
        (48, {"shard": {"strategy": "grad_op"}}, False),
        (24, {"shard": {"strategy": "full"}}, False),
        (24, {"shard": {"cpu_offload": True}}, True),
    ],
)
def test_doctor_says_of_groups_what_a_run_would(machine, monkeypatch, total, editor, fits):
    machine(gpus=2, total=total)
    monkeypatch.setattr(doctor, "choose_gpus", placement.choose_gpus)
    monkeypatch.setattr(doctor, "_host_memory", lambda: 900.0)
    problems = []
    found = doctor._model("editor", settings(editor, gpus_per_worker=2), problems)
    assert (found["fits"], found["weights_gib"], len(problems)) == (fits, 54.0, 0 if fits else 1)


LEAST = 'editor.shard.strategy="full" with editor.shard.cpu_offload=true needs least'


@pytest.mark.parametrize(
    ("editor", "gib", "hint"),
    [
        ({"shard": {"strategy": "context"}}, 108.0, 'editor.shard.strategy="full" needs less'),
        ({"shard": {"text_encoder": "replicate"}}, 69.0, 'editor.shard.text_encoder="shard" needs less'),
        ({"shard": {"strategy": "grad_op", "text_encoder": "replicate"}}, 147.0, 'strategy="full" needs less'),
        ({}, 54.0, LEAST),
        ({"shard": {"strategy": "none"}}, 54.0, LEAST),
    ],
)
def test_what_a_group_cannot_hold_is_refused_with_what_needs_less(machine, editor, gib, hint):
    machine(gpus=2, total=24)
    with pytest.raises(UsageError) as caught:
        placed(settings(editor, gpus_per_worker=2), ["editor"])
    assert str(caught.value).endswith(hint)
    assert f"{gib} GiB" in str(caught.value)


def test_where_no_component_fits_blocks_need_least(machine):
    machine(gpus=2, total=24)
    with pytest.raises(UsageError, match=r'39.0 GiB.*; editor.offload="group" needs least$'):
        placed(settings({"offload": "model"}), ["editor"])


def test_offload_needs_room_for_the_largest_component_only(machine):
    machine(total=48, largest=39)
    found = placed(settings({"offload": "model"}), ["editor"])
    assert found.lines[-1].startswith("plan: edit 39.0 GiB at a time, offloaded on GPU 0")


def test_offload_by_blocks_needs_no_room_that_is_known_beforehand(machine):
    machine(total=8, largest=39)
    found = placed(settings({"offload": "group"}), ["editor"])
    assert found.lines[-1].startswith("plan: edit one block at a time, offloaded on GPU 0")


def test_workers_that_offload_must_fit_into_host_memory(machine):
    machine(gpus=4, total=24, memory=128)
    says = r"^diffusers:a/b: 4 workers that offload .* keep 54.0 GiB of weights each in host memory, .* at most 128.0"
    with pytest.raises(UsageError, match=says):
        placed(settings({"offload": "group"}), ["editor"])
    placed(settings({"offload": "group"}, gpus_per_worker=1), ["editor"], connected(a=(["0", "1"], ["0", "1"])))
    with pytest.raises(UsageError, match=r"3 workers that offload .* on a, b; 2 GPUs \(--imgedit-gpus\) would fit$"):
        placed(settings({"offload": "model"}), ["editor"], connected(a=(["0", "1"], ["0"]), b=(["0"], [])))
    machine(gpus=4, total=24, memory=128, edit=130)
    with pytest.raises(UsageError, match=r"2 workers that offload .* 130.0 GiB .* which is available$"):
        placed(settings({"shard": {"cpu_offload": True}}, gpus_per_worker=2), ["editor"])
    machine(gpus=4, total=24, memory=0)
    assert placed(settings({"offload": "group"}), ["editor"]).lines


def test_an_editor_offloads_where_it_fits_no_other_way(machine):
    machine(total=48)
    chosen = settle_editor(settings(), 1000).editor.params
    assert chosen["offload"] == "group"
    assert "compile" not in chosen
    assert settle_editor(settings({"offload": "none"}), 1).editor.params["offload"] == "none"
    machine(total=80)
    assert "offload" not in settle_editor(settings(), 1).editor.params


def test_busy_gpus_are_named(machine):
    machine(total=140, held=12.0)
    assert placed(settings(), ["editor"]).lines[0] == "warning: GPU 0 is busy: 12.0 GiB held by 123"


def test_without_gpus_there_is_nothing_to_place(machine):
    machine(gpus=0)
    assert placed(settings(), ["editor", "judge"]).mode == "cpu"


def test_gpus_that_do_not_tell_their_memory_are_taken_as_they_are(machine, monkeypatch):
    machine(memory=50)
    monkeypatch.setattr(placement, "gpu_memory", lambda gpus: [])
    found = placed(settings(), ["editor", "judge"])
    plan = "plan: edit 54.0 GiB and judge 58.0 GiB on GPUs that do not tell their memory: one after the other"
    assert (found.mode, found.lines) == ("swap", (plan,))
    assert placed(settings(placement="resident"), ["editor", "judge"]).mode == "resident"
    with pytest.raises(UsageError, match="1 workers that offload"):
        placed(settings({"offload": "model"}), ["editor"])


def connected(**gpus):
    """Hosts `name=(names of its GPUs, those of which tell their memory)`."""
    found = Hosts()
    for name, (names, tell) in gpus.items():
        host = Host(name, lambda message: None)
        sizes = {"free_gib": 80.0, "total_gib": 80.0, "held_gib": 0.0, "holders": ""}
        known = [{"name": gpu, "product": "X", **sizes} for gpu in tell]
        host.facts = {"gpus": names, "gpu_memory": known, "machine": "m", "memory": 128 * GIB}
        found.all.append(host)
    return found


def test_a_host_without_gpus_beside_others_takes_no_part_and_is_named(machine):
    machine()
    hosts = connected(a=(["0", "1"], ["0", "1"]), b=([], []))
    wanted = settings(hosts=["popen"])
    assert groups_of(wanted, model_of(wanted, "editor"), hosts) == [("a", ("0",)), ("a", ("1",))]
    assert (
        placed(wanted, ["editor"], hosts).lines[0] == "warning: b has no GPU, beside hosts that have: it takes no part"
    )


def test_a_gpu_of_a_host_that_does_not_tell_its_memory_is_used(machine):
    machine()
    hosts = connected(a=(["0", "1"], ["1"]), b=(["0"], []))
    wanted = settings(hosts=["popen"])
    assert groups_of(wanted, model_of(wanted, "editor"), hosts) == [("a", ("0",)), ("b", ("0",)), ("a", ("1",))]
    assert len(placed(wanted, ["editor"], hosts).lines) == 1


def test_compiling_is_decided_by_the_planned_work(machine):
    machine(gpus=2)
    auto = settings({"num_inference_steps": 50})
    assert "compile" not in settle_editor(auto, 11).editor.params
    assert settle_editor(auto, 12).editor.params["compile"] == "if possible"  # 12 · 50 / 2 steps a worker
    assert settle_editor(settings({"compile": False}), 1000).editor.params["compile"] is False
    assert "compile" not in settle_editor(settings({"step_cache": "first_block"}), 1000).editor.params
    machine(gpus=2, edit=1)
    assert "compile" not in settle_editor(auto, 1000).editor.params
    assert settle_editor(settings({"spec": "identity"}), 1000).editor.params == {}


def lossy(params):
    return Diffusers("diffusers:a/b", "a/b", params).lossy


def test_lossy_parameters_are_named():
    assert lossy({"quantize": "fp8", "step_cache": None, "compile": True}) == ["quantize=fp8"]
    cached = {"step_cache": "first_block"}
    assert lossy(cached) == ["step_cache=first_block", "step_cache_threshold=0.08"]
    assert lossy({**cached, "step_cache_threshold": 0.5})[1] == "step_cache_threshold=0.5"
    assert lossy({"attention_backend": "sage_hub"}) == ["attention_backend=sage_hub"]
    assert lossy({"attention_backend": "_native_cudnn"}) == []
