"""What earlier runs of a store tell of the memory that a model takes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from documents import a_run

from pytest_imgedit.config.settings import Settings, make_settings
from pytest_imgedit.config.toml_file import ConfigFile
from pytest_imgedit.core.images import FileImage
from pytest_imgedit.core.pairs import EditPair
from pytest_imgedit.report.write import write_results
from pytest_imgedit.run import forecast
from pytest_imgedit.run.forecast import known_peaks

GIB = 2**30
WORKER = {
    "device": "GPU 0",
    "stage": "edit",
    "jobs": 4,
    "busy_s": 1.0,
    "load_s": 0.5,
    "ready_s": 0.5,
}


def worker(name, gib, batch_size=1):
    peak = None if gib is None else gib * GIB
    return {**WORKER, "name": name, "batch_size": batch_size, "gpu_peak": peak, "host_peak": GIB}


@pytest.fixture
def known(tmp_path):
    def ask(run, asked=1, name="s", sources=(), most=None):
        folder = tmp_path / "runs" / "r1"
        folder.mkdir(parents=True, exist_ok=True)
        write_results(run, folder)
        settings = make_settings({"run": {"config_file": ConfigFile()}})
        told = {"fingerprint": "0" * 64, "params": {}}
        editor = SimpleNamespace(batch_size=asked, max_sources=most)
        identity = SimpleNamespace(told=told, model=editor)
        pairs = [SimpleNamespace(sources=(None,) * count) for count in sources]
        store, suite = SimpleNamespace(folder=tmp_path), SimpleNamespace(name=name, pairs=pairs)
        return known_peaks(settings, {"editor": identity}, suite, store).get("editor")

    return ask


def run(*workers, asked=1, **changes):
    made = a_run(workers=list(workers), **changes)
    options = made.run.options
    editor = options.editor.model_copy(update={"batch_size": asked})
    told = options.model_copy(update={"editor": editor, "workers": {"gpus_per_worker": 1}})
    return made.model_copy(update={"run": made.run.model_copy(update={"options": told})})


def test_the_most_of_all_workers_is_known(known):
    peak = known(run(worker("edit-0", 5), worker("edit-1", 7)))
    assert (peak.gpu, peak.host, peak.run, peak.batch_size) == (7 * GIB, GIB, "r1", 1)


def test_a_worker_that_halved_its_batches_took_what_the_larger_one_takes(known):
    assert known(run(worker("edit-0", 70), asked=8), asked=8).batch_size == 8


@pytest.mark.parametrize(
    ("made", "asked", "name"),
    [
        (run(worker("edit-0", None)), 1, "s"),
        (run(worker("edit-0", 5)), 2, "s"),
        (run(worker("edit-0", 5)), 1, "another suite"),
        (
            run(
                worker("edit-0", 5),
                selection={"selected": 4, "whole": 8, "skipped": 0},
                suite={"name": "s", "sha256": "0" * 64, "pairs": 8},
            ),
            1,
            "s",
        ),
        (run(worker("edit-0", 5), editor={"spec": "identity", "fingerprint": "1" * 64}), 1, "s"),
    ],
    ids=["cpu", "batch size", "suite", "a part", "weights"],
)
def test_a_run_of_something_else_tells_nothing(known, made, asked, name):
    assert known(made, asked, name) is None


def with_sources(made, count):
    """A run whose edits were made of this many source images."""
    items = []
    for item in made.items:
        seeds = [replace(seed, edit=replace(seed.edit, sources=count)) for seed in item.seeds]
        items.append(item.model_copy(update={"seeds": tuple(seeds)}))
    return made.model_copy(update={"items": tuple(items)})


@pytest.mark.parametrize(
    ("made_of", "most", "is_known"),
    [(1, None, False), (2, None, False), (3, None, True), (1, 1, True), (1, 2, False)],
)
def test_a_run_without_edits_of_as_many_sources_tells_nothing(known, made_of, most, is_known):
    made = with_sources(run(worker("edit-0", 5)), made_of)
    peak = known(made, sources=(1, 3, 2), most=most)
    assert (peak is not None) is is_known


@pytest.mark.parametrize(
    ("sources", "told"),
    [
        (2, ""),
        (7, ""),
        (8, "; 16 pairs can detect a share of about 0.40 (estimated from run r1)"),
    ],
)
def test_pairs_that_cannot_fail_a_gate_detect_nothing(tmp_path, monkeypatch, sources, told):
    monkeypatch.setattr(forecast.planning, "expected_mde", lambda *rest: (0.1, "run r1"))
    monkeypatch.setattr(forecast, "declared_measures", lambda *rest: {})
    pairs = [
        EditPair(f"p{place}", "c", "change it", FileImage(Path(str(place % sources))))
        for place in range(16)
    ]
    request = SimpleNamespace(
        settings=Settings(gates={"duel": True, "min_win": {"overall": 0.5}}),
        pairs=pairs,
        models={"judge": None},
        additional={},
        suite=SimpleNamespace(name="s"),
        shard=None,
    )
    plan, gate = forecast.request_lines(request, SimpleNamespace(folder=tmp_path))
    rule = "fails if the share of duels (0 to 1) that all pairs win is shown to be under 0.5"
    assert (plan, gate) == ("plan: 16 pairs", f"plan: min_win overall:0.5 {rule}{told}")
