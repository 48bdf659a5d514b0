"""An edit is a function of its key: the same bytes alone, in any company, on one or two workers,
after a resume.
"""

from __future__ import annotations

import json
import os
import signal
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import psutil
import pytest
from PIL import Image

from pytest_imgedit.kinds.diffusers import DiffusersEditor

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conftest import Bench

SCENES = "--imgedit-suite=scenes:n=2,seed=5"
Edits = dict[str, tuple[str, int, str]]
#: One step is enough to tell bytes apart, and is quick.
EDITS = (SCENES, "--imgedit-stage=edit", "--imgedit-set=editor.num_inference_steps=1")


@pytest.fixture(scope="module", autouse=True)
def two_threads() -> Iterator[None]:
    """Compute as a worker process does. Workers are threads of this one, which cannot all import
    PyTorch at once.
    """
    import torch._dynamo

    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def embedded(bench: Bench) -> Bench:
    """A benchmark folder without settings of its own, so that the defaults hold."""
    (bench.path / "pytest.ini").write_text("[pytest]\n")
    (bench.path / "imgedit.toml").unlink()
    return bench


def edits(bench: Bench, *arguments: str, out: str = "whole") -> Edits:
    """Run into a store; return blob, batch size and key of each edit by its pair."""
    assert bench.run(*EDITS, f"--imgedit-out={out}", *arguments).ret == 0
    return edits_in(bench, out)


def edits_in(bench: Bench, out: str) -> Edits:
    """Return blob, batch size and key of each edit of the newest run of a store, by its pair."""
    run = max((bench.path / out / "runs").iterdir(), key=lambda path: path.stat().st_mtime_ns)
    items = json.loads((run / "results.json").read_text())["items"]
    made = {item["id"]: item["seeds"][0]["edit"] for item in items}
    return {
        name: (edit["blob"], edit["batch_size"], edit["key"]) for name, edit in made.items() if edit
    }


@pytest.mark.full
def test_an_edit_is_a_function_of_its_key(embedded: Bench) -> None:
    """It costs over 5 CPU seconds: it edits ten pairs in three ways, and is the first of its
    module.
    """
    whole = edits(embedded)
    assert len(whole) == 10
    assert {size for _, size, _ in whole.values()} == {8}
    assert len({blob for blob, _, _ in whole.values()}) == 10

    alone = edits(embedded, "-k", "social-0001", out="alone")
    assert alone == {"social-0001": whole["social-0001"]}
    assert edits(embedded, "-k", "physics or causal", out="part").items() <= whole.items()
    assert edits(embedded, out="part") == whole  # six are made beside others than before


@pytest.mark.full
def test_edits_of_another_batch_size_have_other_keys(embedded: Bench) -> None:
    [(_, padded_size, padded_key)] = edits(embedded, "-k", "social-0001").values()
    single = edits(embedded, "-k", "social-0001", "--imgedit-set=editor.batch_size=1", out="single")
    [(_, single_size, single_key)] = single.values()
    assert (padded_size, single_size) == (8, 1)
    assert padded_key != single_key


@pytest.mark.full
def test_where_memory_runs_out_edits_have_the_key_and_the_bytes_of_the_smaller_size(
    embedded: Bench,
) -> None:
    four = edits(embedded, "--imgedit-set=editor.batch_size=4", out="four")
    edit_batch, calls = DiffusersEditor.edit_batch, []

    def short(self: Any, requests: Any) -> Any:
        calls.append(len(requests))
        if len(requests) > 4:
            raise RuntimeError("CUDA out of memory")
        return edit_batch(self, requests)

    with patch.object(DiffusersEditor, "edit_batch", short):
        assert edits(embedded) == four
    assert calls == [8, 4, 4, 4]
    assert edits(embedded) == four  # which a run with room finds


@pytest.mark.full
def test_a_batch_that_fails_is_edited_one_by_one_under_keys_of_single_edits(
    embedded: Bench,
) -> None:
    single = edits(embedded, "--imgedit-set=editor.batch_size=1", out="single")

    def broken(self: Any, requests: Any) -> Any:
        raise RuntimeError("no batches today")

    with patch.object(DiffusersEditor, "edit_batch", broken):
        assert edits(embedded) == single


@pytest.mark.full
def test_sources_of_several_sizes_do_not_depend_on_each_other(embedded: Bench) -> None:
    rows = []
    for number, side in enumerate((64, 96, 64, 128, 96, 64)):
        source = Image.linear_gradient("L").convert("RGB").rotate(60 * number).resize((side, 64))
        source.save(embedded.path / f"{number}.png")
        rows.append(
            f'{{"image": "{number}.png", "instruction": "make it red", "category": "physics"}}\n'
        )
    (embedded.path / "rows.jsonl").write_text("".join(rows))
    run = (
        *("--imgedit-suite=rows.jsonl", "--imgedit-editor=scenes"),
        "--imgedit-set=editor.batch_size=2",
    )
    mixed = edits(embedded, *run, out="mixed")
    assert len({blob for blob, _, _ in mixed.values()}) == 6
    for name, made in mixed.items():
        assert edits(embedded, *run, "-k", name, out=f"one-{name}") == {name: made}


@pytest.mark.full
def test_processes_that_are_killed_or_two_make_the_same_bytes(embedded: Bench) -> None:
    """It costs over 5 CPU seconds, as five processes load the editor."""

    def run(out: str, *arguments: str) -> Edits:
        embedded.run_with_workers(*EDITS, f"--imgedit-out={out}", *arguments)
        return edits_in(embedded, out)

    whole = run("whole")
    assert run("two", "--imgedit-set=workers.cpu_workers=2") == whole

    slow = ("--imgedit-set=editor.num_inference_steps=10", "--imgedit-out=.imgedit")
    process = embedded.start(*EDITS, *slow)
    embedded.wait_for(lambda: embedded.stored_edits() > 0)
    (editor,) = [child for child in embedded.children(process) if _is_worker(child)]
    editor.kill()
    embedded.wait_for(lambda: embedded.log_says("died"))
    os.kill(process.pid, signal.SIGKILL)
    embedded.finish(process)
    embedded.run_with_workers(*EDITS, *slow)
    undisturbed = run("undisturbed", slow[0])
    assert edits_in(embedded, ".imgedit") == undisturbed


def _is_worker(process: psutil.Process) -> bool:
    """Tell whether this is a worker, and not its supervisor."""
    try:
        command = " ".join(process.cmdline())
    except psutil.Error:
        return False
    return "sys.stdin.readline" in command and "supervisor.py" not in command
