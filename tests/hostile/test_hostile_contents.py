"""Files that are something else: every reader says what a file is, by its bytes, and what mends it;
folders of the hub's cache, of trainers and of the package datasets in the place of others.
"""

from __future__ import annotations

import gzip
import io
import tarfile
import zipfile
from pathlib import Path

import pytest
from checkpoint_files import pipeline, tensors
from documents import a_baseline, baseline_item
from PIL import Image

from pytest_imgedit.cli.agreement import read_ratings
from pytest_imgedit.cli.importing import _report, _root
from pytest_imgedit.config.settings import SuiteSettings
from pytest_imgedit.config.toml_file import ConfigFile
from pytest_imgedit.core import files, images
from pytest_imgedit.core.errors import ImageError, UsageError
from pytest_imgedit.kinds.checkpoint_files import Layout, loaded_files
from pytest_imgedit.kinds.pipeline_arguments import pipeline_class
from pytest_imgedit.kinds.safetensors_header import tensor_bytes
from pytest_imgedit.protocols.prompts import PromptFiles, Prompts
from pytest_imgedit.report.read import as_baseline, read_results
from pytest_imgedit.store.baseline_edits import BaselineEdits, OtherEdits
from pytest_imgedit.store.journal import EditRecord, Journal
from pytest_imgedit.suites.base import load_suite
from pytest_imgedit.suites.choices import read_choices
from pytest_imgedit.suites.public import keyed_rows
from pytest_imgedit.suites.votes import read_votes


def _zipped(name: str) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as file:
        file.writestr(name, "x")
    return data.getvalue()


def _tarred() -> bytes:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as file:
        file.addfile(tarfile.TarInfo("main.json"))
    return data.getvalue()


CONFLICT = b"{\n<<<<<<< HEAD\n=======\n>>>>>>> feature\n}\n"
#: Contents by name, with what a message says of them: what they are, and what mends them.
CONTENTS = {
    "lfs": (
        b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"a" * 64 + b"\nsize 64817\n",
        ("a Git LFS pointer", "git lfs pull"),
    ),
    "lfs-crlf": (
        b"version https://git-lfs.github.com/spec/v1\r\noid sha256:0\r\nsize 1\r\n",
        ("a Git LFS pointer", "git lfs pull"),
    ),
    "annex": (
        b"/annex/objects/SHA256E-s12345--2ee2c7.json\n",
        ("a git-annex pointer", "git annex get"),
    ),
    "xet": (b"# xet version 0\nfilesize = 3\nhash = '2ee2c7'\n", ("a Xet pointer", "download")),
    "conflict": (CONFLICT, (":2: conflict markers", "git checkout --ours or --theirs")),
    "conflict-crlf": (CONFLICT.replace(b"\n", b"\r\n"), (":2: conflict markers", "save it again")),
    "half-solved": (b"a\n\n>>>>>>> feature\n", (":3: conflict markers", "git checkout")),
    "page": (
        b"\n<!DOCTYPE html>\n<html><head><title>Sign in</title>",
        ("an HTML page ('Sign in')", "download it again, signed in"),
    ),
    "xhtml": (b'<?xml version="1.0"?>\n<html lang="en">', ("an HTML page", "download it again")),
    "s3": (b'<?xml version="1.0"?><Error><Code>X</Code>', ("an XML document", "download it")),
    "404": (b"404: Not Found", ("a server's answer '404: Not Found'", "download it again")),
    "zip": (_zipped("main.json"), ("a zip archive", "unzip")),
    "excel": (_zipped("[Content_Types].xml"), ("a workbook of Excel", "CSV UTF-8")),
    "torch": (_zipped("archive/data.pkl"), ("pickled weights", "safetensors.torch.save_file")),
    "sqlite": (b"SQLite format 3\0" + b"\0\1" * 50, ("an SQLite database", "CSV or JSON")),
    "gzip": (gzip.compress(b"{}"), ("a gzip archive", "gunzip")),
    "zstd": (b"\x28\xb5\x2f\xfd\x04\x00", ("a zstd archive", "unzstd")),
    "tar": (_tarred(), ("a tar archive", "tar -xf")),
    "zeros": (bytes(5000), ("zeros in the place of content", "download it or save it again")),
}


def _prompts(path: Path) -> object:
    return Prompts(path.parent, (path.name,), {"A": ""})["A"]


def _prompt_file(path: Path) -> object:
    return PromptFiles(path.parent, (path.name,), {path.name: ""})[path.name]


def _component_file(path: Path) -> object:
    """A small file of a pipeline's component, which only a worker parses."""
    folder = pipeline(path.parent / "model")
    (folder / "tokenizer" / "tokenizer.json").write_bytes(path.read_bytes())
    return loaded_files(folder, Layout.PIPELINE)


def _pipeline_index(path: Path) -> object:
    path.rename(path.with_name("model_index.json"))
    return pipeline_class(str(path.parent))


def _suite(path: Path) -> object:
    return load_suite(SuiteSettings(spec=str(path)))


def _edit(path: Path) -> object:
    """An edit that a baseline keeps."""
    edits = BaselineEdits(path.parent / "edits")
    place = edits.path(path.stem)
    place.parent.mkdir(parents=True)
    path.rename(place)
    seeds = [{"seed": 0, "score": 5.0, "edit": path.stem}]
    baseline = a_baseline(baseline_item("a", 5.0, seeds=seeds))
    return OtherEdits([], [edits]).require_edits(baseline, ["a"])


#: Readers by name: the name of the file, and what reads it.
READERS = {
    "baseline": ("main.json", as_baseline),
    "results": ("results.json", read_results),
    "edit": (f"{'ab' * 32}.png", _edit),
    "journal": ("edits.jsonl", lambda path: Journal(path, EditRecord)),
    "config": ("imgedit.toml", ConfigFile.read_config),
    "project": ("pyproject.toml", ConfigFile.read_project),
    "protocol": ("own.toml", lambda path: ConfigFile.read(path, "a protocol in TOML")),
    "suite-json": ("s.json", _suite),
    "suite-jsonl": ("s.jsonl", _suite),
    "suite-csv": ("s.csv", _suite),
    "suite-toml": ("s.toml", _suite),
    "suite-parquet": ("s.parquet", _suite),
    "suite-keyed": ("basic_edit.json", lambda path: keyed_rows(path, "pairs")),
    "prompts-json": ("prompts.json", _prompts),
    "prompts-python": ("prompts.py", _prompts),
    "prompt-file": ("v1.yaml", _prompt_file),
    "ratings": ("ratings.csv", read_ratings),
    "choices": ("choices.csv", lambda path: read_choices(str(path))),
    "votes": ("votes.csv", read_votes),
    "votes-log": ("a_vs_b.jsonl", read_votes),
    "import-yaml": ("config.yaml", _root),
    "import-report": ("evaluation_report_1.json", _report),
    "instruction": ("a.txt", lambda path: files.read_utf8(path, 20_000, "the instruction")),
    "safetensors": ("model.safetensors", tensor_bytes),
    "model-index": ("index.json", _pipeline_index),
    "component-file": ("tokenizer.json", _component_file),
    "picture": ("a.png", lambda path: images.FileImage(path).read()),
}


@pytest.mark.parametrize("content", CONTENTS)
@pytest.mark.parametrize("reader", READERS)
def test_every_reader_says_what_a_file_is_and_what_mends_it(tmp_path, reader, content):
    name, read = READERS[reader]
    data, said = CONTENTS[content]
    if reader == "journal" and content == "zeros":
        pytest.skip("zeros are the end that a crash leaves, and are dropped")
    if reader.endswith("parquet"):
        pytest.importorskip("pyarrow")
    (tmp_path / name).write_bytes(data)
    with pytest.raises((UsageError, ImageError)) as raised:
        read(tmp_path / name)
    [line] = str(raised.value).splitlines()
    assert str(tmp_path) in line
    assert "expected" in line
    assert all(words in line for words in said), line


@pytest.mark.parametrize("content", CONTENTS)
def test_a_picture_that_is_none_is_named_where_its_bytes_are_decoded(content):
    data, (what, remedy) = CONTENTS[content]
    with pytest.raises(ImageError) as raised:
        images.decode(data)
    assert what.removeprefix(":2: ").removeprefix(":3: ") in str(raised.value)
    assert remedy in str(raised.value)


def _picture(kind: str) -> bytes:
    data = io.BytesIO()
    Image.effect_noise((64, 64), 50).save(data, kind)
    return data.getvalue()


WHOLE = {
    "baseline": b'{"schema": "imgedit.baseline/4", "items": [{"id": "a", "score": 1.5}]}',
    "suite-json": b'[{"id": "a", "instruction": "x", "image": "a.png"}]',
    "suite-jsonl": b'{"id": "a", "instruction": "x", "image": "a.png"}',
    "suite-keyed": b'{"1": {"id": "a.png", "prompt": "x", "edit_type": "add"}}',
    "import-report": b'{"category_statistics": {}, "overall_statistics": {"n": 1}}',
    "votes-log": b'{"model_a": "a", "model_b": "b", "sample_index": 1, "final_winner": "a"}',
    "prompts-json": b'{"A": "What is here?"}',
    "safetensors": tensors(b"12345678"),
}


@pytest.mark.parametrize("part", [0.3, 0.6, 0.9])
@pytest.mark.parametrize("reader", WHOLE)
def test_a_file_that_is_cut_short_is_said_to_be(tmp_path, reader, part):
    name, read = READERS[reader]
    (tmp_path / name).write_bytes(WHOLE[reader][: int(part * len(WHOLE[reader]))])
    with pytest.raises(UsageError, match=r"cut short"):
        read(tmp_path / name)


@pytest.mark.parametrize(
    ("name", "text"),
    [("s.toml", 'a = "x'), ("s.csv", "id,image,instruction\na,a.png,x\nb,b"), ("o.toml", "a = [1")],
)
def test_a_table_that_is_cut_short_is_said_to_be(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    with pytest.raises(UsageError, match="cut short"):
        _suite(tmp_path / name)


@pytest.mark.parametrize("part", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP"])
def test_a_picture_that_is_cut_short_is_said_to_be(kind, part):
    data = _picture(kind)
    with pytest.raises(ImageError, match="broken image: cut short"):
        images.decode(data[: int(part * len(data))])


def test_parquet_that_is_cut_short_is_said_to_be(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "s.parquet"
    parquet.write_table(pyarrow.table({"id": ["a"] * 100}), path)
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(UsageError, match="no parquet file: cut short"):
        _suite(path)


@pytest.mark.parametrize(
    "reader", [name for name in READERS if name not in ("journal", "config", "project", "protocol",
    "instruction", "suite-toml", "prompts-python", "prompt-file")]
)  # fmt: skip
@pytest.mark.parametrize("data", [b"", b"\n\n"])
def test_an_empty_file_is_said_to_be(tmp_path, reader, data):
    name, read = READERS[reader]
    (tmp_path / name).write_bytes(data)
    with pytest.raises((UsageError, ImageError), match=r"empty file|no column|no pairs|no keys"):
        read(tmp_path / name)


@pytest.mark.parametrize(
    ("target", "remedy"),
    [
        ("../.git/annex/objects/xX/9f/SHA256E-s1--0.json", "git annex get"),
        ("/cache/.dvc/cache/files/md5/ab/cdef", "dvc pull"),
        ("../elsewhere.json", "cp -rL"),
    ],
)
@pytest.mark.parametrize("reader", ["baseline", "config", "suite-json", "picture", "safetensors"])
def test_a_dead_link_is_named_with_its_target(tmp_path, reader, target, remedy):
    name, read = READERS[reader]
    (tmp_path / name).symlink_to(target)
    with pytest.raises((UsageError, ImageError)) as raised:
        read(tmp_path / name)
    assert f"a dead link to {target}, expected" in str(raised.value)
    assert remedy in str(raised.value)
