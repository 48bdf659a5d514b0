"""Configs and reports of others: `imgedit import` takes what is plain, and refuses all else in one
line and in time.
"""

from __future__ import annotations

import os
import re
import time

import pytest

from pytest_imgedit.cli.main import main

STEPS = "diffusion_model: {params: {num_inference_steps: %s}}"
LAUGHTER = "\n".join(
    ["a0: &a0 [1]", *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10))]
)
TABLES = "\n".join(
    [
        "a0: &a0 {x: 1}",
        *(
            f"a{n}: &a{n} {{{', '.join(f'k{m}: *a{n - 1}' for m in range(12))}}}"
            for n in range(1, 9)
        ),
    ]
)
CONFIGS = {
    "aliases": (f"{LAUGHTER}\n{STEPS % '*a9'}", "2: alias *a0, expected the value itself"),
    "aliases-of-tables": (TABLES, "2: alias *a0, expected"),
    "alias-of-itself": ("benchmark: &a {b: *a}", "1: alias *a, expected"),
    "keys": ("\n".join(f"k{n}: {n}" for n in range(60_000)), "more than 5000 values"),
    "lists": ("[" * 100_000, "1: more than 8 tables and lists inside each other"),
    "tables": ("{a: " * 5_000, "1: more than 8 tables and lists"),
    "keys-of-keys": ("? " * 20_000, "1: more than 8 tables and lists"),
    "list-as-key": ("benchmark: {[a]: 1}", "1: a key that is a table or a list"),
    "binary": (
        STEPS % "!!binary aGVsbG8=",
        "1: diffusion_model.params.num_inference_steps: found tag:yaml.org,2002:binary",
    ),
    "python": (
        STEPS % "!!python/object/apply:os.system [touch pwned]",
        "found tag:yaml.org,2002:python/object/apply",
    ),
    "list-of-lists": (STEPS % "[[1]]", "found tag:yaml.org,2002:seq, expected text, a number"),
    "no-int": (STEPS % "!!int abc", "found 'abc': ValueError"),
    "no-float": (STEPS % "!!float abc", "found 'abc': ValueError"),
    "no-bool": (STEPS % "!!bool abc", "found 'abc': KeyError"),
    "digits": (STEPS % ("9" * 6_000), "6000 characters, expected at most 4000"),
    "hex": (STEPS % ("0x" + "f" * 3_900), "found '0xffff"),
    "bits": (STEPS % ("9" * 30), "expected a number of 64 bits"),
    "surrogate": (STEPS % '"\\ud800"', "found '\\ud800': UnicodeEncodeError"),
    "infinity": (STEPS % ".inf", "holds what a TOML config cannot say"),
    "version": (f"%YAML 1.{'9' * 6_000}\n---\na: 1", "not valid YAML"),
    "open": ("a: [", "not valid YAML"),
    "control": ("a: \x01", "not valid YAML"),
    "large": (f"a: {'x' * 2**20}", "expected at most 1048576"),
}


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refuses(here, capsys, name, line):
    """Check that a file is refused in one line, in a few seconds, and that nothing is left."""
    before, started = sorted(here.rglob("*")), time.process_time()
    assert main(["import", name]) == 4
    assert time.process_time() - started < 5
    [told] = capsys.readouterr().err.splitlines()
    assert line in told
    assert len(told) < 500
    assert sorted(here.rglob("*")) == before


@pytest.mark.parametrize("kind", CONFIGS)
def test_a_hostile_config_is_refused_in_one_line(here, capsys, kind):
    text, line = CONFIGS[kind]
    (here / "config.yaml").write_text(text)
    refuses(here, capsys, "config.yaml", line)


@pytest.mark.parametrize(
    "value", ["2020-01-01", "2020-99-99", "!!binary aGVsbG8=", "[{a: [1, {b: 2}]}]", "!!int abc"]
)
def test_what_has_no_counterpart_may_hold_anything(here, capsys, value):
    (here / "config.yaml").write_text(f"{STEPS % 15}\nlogging: {{when: {value}}}\n")
    assert main(["import", "config.yaml"]) == 0
    assert "logging.when: no counterpart" in capsys.readouterr().out
    assert "num_inference_steps = 15" in (here / "imgedit.toml").read_text()


STATISTICS = '{"mean": %s, "std": 0, "median": 0, "min": 0, "max": 0, "num_samples": %s}'
REPORT = '{"category_statistics": {}, "overall_statistics": %s}'
REPORTS = {
    "deep": ("[" * 200_000, "not valid JSON"),
    "many-digits": (REPORT % STATISTICS % ("9" * 400, 1), "expected numbers"),
    "more-digits": (REPORT % STATISTICS % ("9" * 5_000, 1), "not valid JSON"),
    "nan": (REPORT % STATISTICS % ("NaN", 1), "expected numbers"),
    "infinity": (REPORT % STATISTICS % ("1e999", 1), "expected numbers"),
    "samples": (REPORT % STATISTICS % (1, '"\\ud800"'), "expected numbers"),
    "not-utf8": (b"\xff\xfe", "not UTF-8"),
}


@pytest.mark.parametrize("kind", REPORTS)
def test_a_hostile_report_is_refused_in_one_line(here, capsys, kind):
    text, line = REPORTS[kind]
    (here / "report.json").write_bytes(text if isinstance(text, bytes) else text.encode())
    refuses(here, capsys, "report.json", line)


@pytest.mark.parametrize("name", ["config.yaml", "report.json"])
@pytest.mark.parametrize("kind", ["fifo", "device", "folder", "broken-link"])
def test_what_is_no_file_is_refused_at_once(here, capsys, name, kind):
    if kind == "fifo":
        os.mkfifo(here / name)
    elif kind == "folder":
        (here / name).mkdir()
    else:
        (here / name).symlink_to("/dev/zero" if kind == "device" else "nowhere")
    refuses(here, capsys, name, "expected a ")


def test_a_config_that_cannot_be_written_leaves_nothing(here, capsys, monkeypatch):
    (here / "config.yaml").write_text(STEPS % 15)
    before = sorted(here.rglob("*"))

    def full(self, target):
        raise OSError(28, "No space left on device", str(target))

    monkeypatch.setattr("pathlib.Path.replace", full)
    assert main(["import", "config.yaml"]) == 4
    told = capsys.readouterr().err
    assert re.fullmatch(
        r"imgedit: imgedit\.toml: No space left on device \([0-9.]+ MiB free\)\n", told
    )
    assert sorted(here.rglob("*")) == before
