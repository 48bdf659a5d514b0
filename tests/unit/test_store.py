"""Blobs, journals, locks and fingerprints."""

from __future__ import annotations

import hashlib
import json
import zlib

import pytest
from PIL import Image

from pytest_imgedit.editors.base import resolve_editor
from pytest_imgedit.errors import UsageError
from pytest_imgedit.fingerprints import fingerprint
from pytest_imgedit.images import encode_png
from pytest_imgedit.store.blobs import Blobs
from pytest_imgedit.store.journal import Journal
from pytest_imgedit.store.runs import Store, write_json

PNG = encode_png(Image.new("RGB", (4, 4), "red"))


def test_blob_is_named_by_its_content_and_read_back(tmp_path):
    blobs = Blobs(tmp_path)
    name = blobs.put(PNG)
    assert name == hashlib.sha256(PNG).hexdigest()
    assert blobs.get(name) == PNG
    assert blobs.path(name) == tmp_path / name[:2] / f"{name}.png"
    assert [path.name for path in (tmp_path / name[:2]).iterdir()] == [f"{name}.png"]


@pytest.mark.parametrize("damage", [lambda data: data[:-1], lambda data: b"x" + data[1:], lambda data: b""])
def test_damaged_blob_counts_as_missing_and_is_written_again(tmp_path, damage):
    blobs = Blobs(tmp_path)
    name = blobs.put(PNG)
    blobs.path(name).write_bytes(damage(PNG))
    assert blobs.get(name) is None
    assert blobs.get("0" * 64) is None
    blobs.put(PNG)
    assert blobs.get(name) == PNG


def test_journal_keeps_the_last_record_of_a_key(tmp_path):
    journal = Journal(tmp_path / "j.jsonl")
    journal.append([("a", {"n": 1}), ("b", {"text": "物理\n\t"})])
    journal.append([("a", {"n": 2})])
    journal.close()
    assert Journal(tmp_path / "j.jsonl").records == {"a": {"n": 2}, "b": {"text": "物理\n\t"}}


def test_torn_last_line_is_dropped_and_writing_goes_on(tmp_path):
    path = tmp_path / "j.jsonl"
    journal = Journal(path)
    journal.append([("a", {"n": 1}), ("b", {"n": 2})])
    journal.close()
    whole = path.read_bytes()
    for cut in range(1, len(whole.splitlines(keepends=True)[1])):
        path.write_bytes(whole[:-cut])
        journal = Journal(path)
        assert journal.torn
        assert journal.records == {"a": {"n": 1}}
        journal.append([("c", {"n": 3})])
        journal.close()
        assert Journal(path).records == {"a": {"n": 1}, "c": {"n": 3}}


def test_damaged_middle_line_is_an_error_that_names_it(tmp_path):
    path = tmp_path / "j.jsonl"
    journal = Journal(path)
    journal.append([("a", {"n": 1}), ("b", {"n": 2}), ("c", {"n": 3})])
    journal.close()
    path.write_bytes(path.read_bytes().replace(b'"n": 2', b'"n": 9'))
    with pytest.raises(UsageError, match=r"j\.jsonl:2: damaged record"):
        Journal(path)


@pytest.mark.parametrize("line", ["[]", "3", '{"n": 1}', '{"key": 5}'])
def test_record_that_is_none_is_a_damaged_record(tmp_path, line):
    path = tmp_path / "j.jsonl"
    packed = f"{line}\t{zlib.crc32(line.encode()):08x}\n"
    path.write_text(packed * 2)
    with pytest.raises(UsageError, match=r"j\.jsonl:1: damaged record"):
        Journal(path)


def test_record_of_other_fields_counts_as_missing(tmp_path):
    journal = Journal(tmp_path / "j.jsonl")
    journal.append([("a", {"blob": "x", "seconds": 1})])
    assert journal.get("a", blob=str, seconds=(int, float)) == {"blob": "x", "seconds": 1}
    assert journal.get("a", blob=int) is None
    assert journal.get("a", blob=str, near_copy=bool) is None


def test_journal_that_is_no_file_is_refused(tmp_path):
    (tmp_path / "j.jsonl").mkdir()
    with pytest.raises(UsageError, match="not a regular file"):
        Journal(tmp_path / "j.jsonl")


def test_folder_that_holds_other_things_is_no_store(tmp_path):
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(UsageError, match="holds other files, expected a store or an empty or new folder"):
        Store(tmp_path).__enter__()
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_links_in_the_store_are_not_followed(tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "lock").symlink_to(victim)
    with pytest.raises(UsageError, match="expected a folder that can be written"):
        Store(tmp_path / "s").__enter__()
    (tmp_path / "blobs").mkdir()
    (tmp_path / "blobs" / ".partial").symlink_to(victim)
    Blobs(tmp_path / "blobs").put(PNG)
    assert victim.read_text() == "precious"


def test_store_is_held_by_one_process_at_a_time(tmp_path):
    with Store(tmp_path / "s") as first:
        assert first.new_run().is_dir()
        with pytest.raises(UsageError, match="the store is held by process"):
            Store(tmp_path / "s").__enter__()
    with Store(tmp_path / "s"):
        pass


def test_unwritable_store_is_a_usage_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="expected a folder that can be written"):
        Store(tmp_path / "file").__enter__()


def test_json_is_replaced_whole(tmp_path):
    write_json(tmp_path / "r.json", {"a": "物"})
    assert json.loads((tmp_path / "r.json").read_text("utf-8")) == {"a": "物"}
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(tmp_path / "r.json", {"a": float("nan")})
    assert json.loads((tmp_path / "r.json").read_text("utf-8")) == {"a": "物"}


def test_fingerprint_follows_every_byte_of_the_weights_but_not_their_place(tmp_path):
    for name in ("one", "two"):
        (tmp_path / name / "unet").mkdir(parents=True)
        (tmp_path / name / "model_index.json").write_text("{}")
        (tmp_path / name / "unet" / "w.safetensors").write_bytes(b"0" * 1000)

    def of(name):
        return fingerprint(resolve_editor(f"diffusers:{tmp_path / name}"), {}, tmp_path / "cache.json")

    first = of("one")
    assert of("one") == of("two") == first
    (tmp_path / "two" / "unet" / "w.safetensors").write_bytes(b"0" * 999 + b"1")
    assert of("two") != first


def test_fingerprint_of_a_class_follows_its_source(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    source = tmp_path / "my_editor_module.py"
    source.write_text("class Mine: ...\n")
    first = fingerprint(resolve_editor("my_editor_module:Mine"), {}, tmp_path / "cache.json")
    source.write_text("class Mine:\n    x = 1\n")
    assert fingerprint(resolve_editor("my_editor_module:Mine"), {}, tmp_path / "cache.json") != first


def test_model_that_is_nowhere_is_a_usage_error(tmp_path):
    with pytest.raises(UsageError, match="neither a folder nor to be had from the hub"):
        fingerprint(resolve_editor("diffusers:nobody/no-such-model"), {}, tmp_path / "cache.json")


def test_fingerprint_of_a_class_follows_the_files_that_its_parameters_name(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "my_other_module.py").write_text("class Mine: ...\n")
    weights = tmp_path / "weights.txt"
    weights.write_text("1")
    target, params = resolve_editor("my_other_module:Mine"), {"checkpoint": str(weights), "steps": 3, "name": "x\0" * 9}
    first = fingerprint(target, params, tmp_path / "cache.json")
    weights.write_text("2")
    assert fingerprint(target, params, tmp_path / "cache.json") != first


def test_damaged_hash_cache_costs_only_time(tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "w.safetensors").write_bytes(b"0" * 100)
    target = resolve_editor(f"diffusers:{tmp_path / 'model'}")
    first = fingerprint(target, {}, tmp_path / "cache.json")
    (tmp_path / "cache.json").write_text((tmp_path / "cache.json").read_text()[:20])
    assert fingerprint(target, {}, tmp_path / "cache.json") == first


@pytest.mark.parametrize("name", ["/", ".", "..", "x\0y", "x" * 5000])
def test_parameters_that_only_look_like_paths_are_not_read(tmp_path, monkeypatch, name):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "my_third_module.py").write_text("class Mine: ...\n")
    target = resolve_editor("my_third_module:Mine")
    (tmp_path / "store").mkdir()
    monkeypatch.chdir(tmp_path)
    cache = tmp_path / "store" / "cache.json"
    assert fingerprint(target, {"sep": name}, cache) == fingerprint(target, {}, cache)
