"""Both trainings from end to end with tiny sizes: stopped, taken up again, and loaded by the
harness's own classes.
"""

from __future__ import annotations

import json
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from later import Later
from PIL import Image

from pytest_imgedit.config.settings import Settings
from pytest_imgedit.core.requests import EditRequest, Question
from pytest_imgedit.kinds.diffusers import DiffusersEditor
from pytest_imgedit.kinds.qwen_vl import QwenVLJudge
from pytest_imgedit.protocols.loading import load_protocol

editor = Later("tools.train_embedded.editor")
judge = Later("tools.train_embedded.judge")
records = Later("tools.train_embedded.records")

FOLDER = Path(__file__).parents[2] / "tools" / "train_embedded"
EDITOR = {
    "data": {"capacity": 8, "first": 8, "workers": 0},
    "vae": {"steps": 2, "batch": 2},
    "vae.sizes": {"block_out_channels": [8, 8, 8, 8]},
    "unet": {"steps": 2, "batch": 2},
    "unet.sizes": {"block_out_channels": [16, 32]},
    "text": {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1},
}
JUDGE = {
    "data": {"capacity": 16, "first": 16, "workers": 0, "held_out": 96},
    "train": {"steps": 2, "batch": 4, "measure_every": 1},
    "editor": {"bank": 8, "batch": 4, "every": 1},
    "vision": {"depth": 2, "hidden_size": 48, "intermediate_size": 48},
    "text": {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 1},
}


def _smaller(name: str, changes: dict[str, dict[str, Any]], folder: Path) -> Path:
    """Write a copy of a training's config with other numbers; unknown keys fail."""
    lines, table = [], ""
    for line in (FOLDER / name).read_text().splitlines():
        table = line.strip("[]").split("]")[0] if line.startswith("[") else table
        key = line.partition(" = ")[0]
        if key in changes.get(table, {}):
            line = f"{key} = {json.dumps(changes[table].pop(key))}"
        lines.append(line)
    assert not any(changes.values()), changes
    path = folder / name
    path.write_text("\n".join(lines))
    assert tomllib.loads(path.read_text())
    return path


def _call(module: Any, monkeypatch: pytest.MonkeyPatch, **options: object) -> None:
    arguments = [text for name, value in options.items() for text in (f"--{name}", str(value))]
    monkeypatch.setattr(sys, "argv", ["training", *arguments])
    module.main()


def _logged(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.full
def test_trained_models_load_as_any_other_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tools.train_embedded.pool.CHUNK", 8)
    work, out = tmp_path / "work", tmp_path / "out"
    config = _smaller("editor.toml", {name: dict(keys) for name, keys in EDITOR.items()}, tmp_path)
    _call(editor, monkeypatch, work=work, config=config, out=out / "editor", minutes=0)
    assert not (out / "editor").exists()  # stopped before the first stage was done
    _call(editor, monkeypatch, work=work, config=config, out=out / "editor")
    assert [line["step"] for line in _logged(work / "vae" / "log.jsonl")] == [2]
    assert _logged(work / "unet" / "log.jsonl")[0]["parameters"].keys() == {
        "vae",
        "text_encoder",
        "unet",
    }

    longer = {name: dict(keys) for name, keys in EDITOR.items()} | {
        "unet": {"steps": 9, "batch": 2}
    }
    config = _smaller("editor.toml", longer, tmp_path)
    _call(editor, monkeypatch, work=work, config=config, out=tmp_path / "unfinished", minutes=0)
    assert not (tmp_path / "unfinished").exists()  # stopped in the second stage

    monkeypatch.setattr("tools.train_embedded.bank.STEPS", (1, 2))
    config = _smaller("judge.toml", {name: dict(keys) for name, keys in JUDGE.items()}, tmp_path)
    _call(
        judge,
        monkeypatch,
        work=work,
        config=config,
        editor=out / "editor",
        out=out / "judge",
        minutes=0,
    )
    assert not (out / "judge").exists()
    _call(judge, monkeypatch, work=work, config=config, editor=out / "editor", out=out / "judge")
    measured = [line for line in _logged(work / "judge" / "log.jsonl") if "spearman" in line]
    assert [line["step"] for line in measured] == [1, 2]
    assert "editor" in measured[-1]["kinds"]

    category, scene, _ = records.make_scenes(8, 1)
    source = Image.fromarray(records.draw(scene, False))
    pair = records.as_pair(scene, category, "en")
    edited = DiffusersEditor(str(out / "editor"), device="cpu", num_inference_steps=1).edit(
        EditRequest("pair", category, pair.instruction, source, 1)
    )
    assert edited.size == source.size
    call = load_protocol(Settings()).calls(pair)[0]
    images = {"source": source, "edited": edited}
    trained = QwenVLJudge(str(out / "judge"), device="cpu", max_new_tokens=4)
    (answer,) = trained.answer(
        [Question("pair", category, pair.instruction, images, call.system, call.parts)]
    )
    assert answer.error is None


@pytest.mark.everyday
def test_weights_never_replace_a_folder_that_holds_something_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "thesis.txt").write_text("four years")
    with pytest.raises(SystemExit):
        _call(editor, monkeypatch, work=tmp_path / "work", out=tmp_path)
    assert f"--out {tmp_path}: holds no model" in capsys.readouterr().err
    assert (tmp_path / "thesis.txt").exists()
