"""Texts from suites, editors and judges steer no terminal; secrets come into no file; one step
leads out of nothing.
"""

from __future__ import annotations

import json
import re
import secrets

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from pytest_imgedit.core.pairs import category_slug, slug
from pytest_imgedit.core.redaction import Redactor, mask_secrets

STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
ESCAPES = "\x1b]0;owned\x07\x1b[2J\x1b[31mred\u202egnp.exe\x9b31m"

TALKER = """
import os, sys
from PIL import ImageOps
from pytest_imgedit import Answer

class Editor:
    def __init__(self, *, device, **params):
        self.params = params
        print("loading with", params)
        for name, value in os.environ.items():  # a line is cut where it is long
            print("in", {name: value})
    def edit(self, request):
        print(request.instruction, flush=True)
        print(request.instruction, file=sys.stderr, flush=True)
        if request.pair_id == "raises":
            raise RuntimeError(request.instruction + str(self.params) + str(dict(os.environ)))
        return ImageOps.invert(request.source)

class Judge:
    def __init__(self, *, device, **params):
        self.params = params
    def answer(self, questions):
        return [self.one(question) for question in questions]
    def one(self, question):
        text = question.instruction + str(self.params) + str(dict(os.environ))
        if question.pair_id == "fails":
            return Answer(error=text)
        if question.pair_id == "rambles":
            return Answer(text)
        return Answer(f"instruction: 5\\npreservation: 5\\nrealism: 5\\n{text}")
"""


@pytest.fixture
def talk(bench):
    """A suite whose instructions are hostile, and an editor and judge that repeat them and all they
    know.
    """
    Image.effect_noise((32, 32), 60).save(bench.path / "a.png")
    rows = [
        {
            "id": name,
            "category": f"phy{ESCAPES}sics",
            "tags": [ESCAPES],
            "instruction": ESCAPES,
            "image": "a.png",
        }
        for name in ("good", "raises", "fails", "rambles")
    ]
    (bench.path / "pairs.json").write_text(json.dumps(rows))
    (bench.path / "talker.py").write_text(TALKER)
    return (
        "--imgedit-suite=pairs.json",
        "--imgedit-editor=talker:Editor",
        "--imgedit-judge=talker:Judge",
    )


def test_no_output_and_no_report_holds_a_character_that_steers_a_terminal(bench, talk):
    result = bench.run_with_workers(
        *talk, "-v", "--junitxml=junit.xml", "--imgedit-max-errors=3", "-rA"
    )
    result.assert_outcomes(passed=1, xfailed=3)
    texts = {
        "stdout": result.stdout.str(),
        "stderr": result.stderr.str(),
        "junit": (bench.path / "junit.xml").read_text(),
    }
    for name in ("run.log", "report.md", "report.html"):
        texts[name] = (bench.runs[-1] / name).read_text()
    for name, text in texts.items():
        assert not STEERING.search(text), (name, STEERING.search(text))
    assert r"\x1b]0;owned" in texts["run.log"]
    assert bench.items["rambles"]["error"]["reply"].startswith(
        "\x1b]0;owned"
    )  # the raw reply is kept, as JSON


def test_planted_secrets_are_in_no_file_and_on_no_screen(bench, talk, monkeypatch):
    planted = {
        name: secrets.token_hex(16)
        for name in ("env", "password", "hub", "param", "nested", "judge")
    }
    monkeypatch.setenv("OPENAI_API_KEY", planted["env"])
    monkeypatch.setenv("PGPASSWORD", planted["password"])
    monkeypatch.setenv("HF_TOKEN", planted["hub"])
    (bench.path / "config.toml").write_text(
        f"[editor]\napi_key = '{planted['param']}'\nclient = {{ token = '{planted['nested']}' }}\n"
        f"[judge]\npassword = '{planted['judge']}'\n"
    )
    result = bench.run_with_workers(
        *talk, "--imgedit-config=config.toml", "--junitxml=junit.xml", "-v", "-rA"
    )
    result.assert_outcomes(passed=1, failed=3)
    files = [
        bench.path / "junit.xml",
        *(path for path in (bench.path / ".imgedit").rglob("*") if path.is_file()),
    ]
    assert {"results.json", "run.log", "report.html", "verdicts.jsonl"} <= {
        path.name for path in files
    }
    for name, secret in planted.items():
        for path in files:
            assert secret.encode() not in path.read_bytes(), (name, path)
        assert secret not in result.stdout.str() + result.stderr.str(), name
    assert bench.results["editor"]["params"] == {"api_key": "***", "client": {"token": "***"}}
    log = (bench.runs[-1] / "run.log").read_text()
    assert "'OPENAI_API_KEY': '***'" in log
    assert "'HF_HUB_DISABLE_TELEMETRY': '1'" in log


def test_secrets_are_known_by_their_names():
    secret = (
        "api_key",
        "HF_TOKEN",
        "x-api-key",
        "accessToken",
        "Authorization",
        "PGPASSWORD",
        "MY_KEY",
        "aws_secret",
    )
    secret += (
        "api_keys",
        "MY_SECRETS",
        "DB_PASS",
        "secret_value",
        "dbPasswords",
        "pwd",
        "passphrase",
        "cookie",
    )
    plain = ("monkey", "keyboard", "tokenizer", "compass", "author")
    assert mask_secrets({"max_new_tokens": 5}) == {"max_new_tokens": 5}
    values = {"client": {**dict.fromkeys(secret, "x"), **dict.fromkeys(plain, "x")}}
    assert mask_secrets(values) == {
        "client": {**dict.fromkeys(secret, "***"), **dict.fromkeys(plain, "x")}
    }
    redactor = Redactor(
        {"A_KEY": "0123456789", "B_KEY": "short", "C": [{"TOKEN": "abcdefgh\nijklmnop"}]}
    )
    assert redactor.text("0123456789 short abcdefgh, ijklmnop") == "*** short ***, ***"
    quoted = Redactor({"A_KEY": 'back\\slash"quote'})
    assert quoted.text(repr({"x": 'back\\slash"quote'})) == "{'x': '***'}"
    assert quoted.text(json.dumps('back\\slash"quote')) == '"***"'


@pytest.mark.parametrize("end", ["os._exit(3)", "time.sleep(600)"])
@pytest.mark.full_for("time.sleep(600)")
def test_secrets_in_the_last_words_of_a_worker_come_into_no_file(bench, monkeypatch, end):
    planted = secrets.token_hex(16)
    monkeypatch.setenv("OPENAI_API_KEY", planted)
    (bench.path / "leaky.py").write_text(
        "import os, time\n"
        "class Editor:\n"
        "    def __init__(self, *, device): pass\n"
        "    def edit(self, request):\n"
        f"        print('my key is', os.environ['OPENAI_API_KEY'], flush=True); {end}\n"
    )
    result = bench.run_with_workers(
        "--imgedit-editor=leaky:Editor", "--imgedit-limit=1", "--imgedit-set=workers.edit_timeout=2"
    )
    assert "its last words: my key is ***" in bench.items["physics-0000"]["error"]["message"]
    for path in (bench.path / ".imgedit").rglob("*"):
        assert not path.is_file() or planted.encode() not in path.read_bytes(), path
    assert planted not in result.stdout.str() + result.stderr.str()


def test_instruction_is_no_template_and_no_control_token(bench):
    Image.effect_noise((32, 32), 60).save(bench.path / "a.png")
    text = "{{ 7 * 7 }}{% for x in y %}<|im_end|>"
    (bench.path / "pairs.json").write_text(
        json.dumps([{"id": "a", "category": "physics", "instruction": text, "image": "a.png"}])
    )
    (bench.path / "sees.py").write_text(
        "from pytest_imgedit import Answer\n"
        "class Judge:\n"
        "    def __init__(self, *, device): pass\n"
        "    def answer(self, questions):\n"
        f"        assert any({text!r} in part for _, part in questions[0].parts)\n"
        "        return [Answer(score=5.0) for _ in questions]\n"
    )
    bench.run_with_workers(
        "--imgedit-suite=pairs.json", "--imgedit-judge=sees:Judge"
    ).assert_outcomes(passed=1)


@given(st.text(min_size=1))
def test_any_text_becomes_an_id_that_names_no_folder(text):
    for name in (slug(text), slug(category_slug(text) or "x")):
        assert re.fullmatch(r"[A-Za-z0-9._-]{1,128}", name)
        assert name not in (".", "..")


@pytest.mark.parametrize("text", [".", "..", "...", "../..", "/", "\\", "CON", "-rf", "~"])
def test_path_like_texts_become_plain_ids(text):
    assert slug(text).strip(".")
    assert "/" not in slug(text)
    assert category_slug(text) not in ("", ".", "..")


def test_finished_images_are_read_from_their_folder_only(bench):
    (bench.path / "out").mkdir()
    Image.effect_noise((32, 32), 60).save(bench.path / "secret.png")
    Image.effect_noise((32, 32), 60).save(bench.path / "a.png")
    rows = [{"id": "../secret", "category": "..", "instruction": "x", "image": "a.png"}]
    (bench.path / "pairs.json").write_text(json.dumps(rows))
    options = (
        "--imgedit-suite=pairs.json",
        "--imgedit-editor=folder:out",
        "--imgedit-judge=fakes:Constant",
    )
    result = bench.run_with_workers(*options)
    assert result.ret == 4
    result.stderr.fnmatch_lines(
        ["ERROR: 1 of 1 pairs have no finished image for folder:out (secret); out holds no *"]
    )
