"""Bad options and configs exit 4 with one line; command line wins over TOML, TOML over ini."""

from __future__ import annotations

import pytest

BAD_OPTIONS = [
    pytest.param(["--imgedit-gpus=5-0"], "--imgedit-gpus=5-0: '5-0' counts down, expected *", id="gpus-down"),
    pytest.param(["--imgedit-gpus=0,0"], "*a GPU is named twice*", id="gpus-twice"),
    pytest.param(["--imgedit-gpus=97"], "*no GPU 97, this machine shows *", id="gpu-absent"),
    pytest.param(["--imgedit-gpus-per-worker=2", "--imgedit-gpus=none"], "*expected a multiple of 2", id="group"),
    pytest.param(["--imgedit-suite=nope"], "unknown suite 'nope', expected one of *scenes*", id="suite"),
    pytest.param(["--imgedit-suite=nope.json"], "nope.json: no such file, expected *", id="suite-file"),
    pytest.param(["--imgedit-suite=scenes:n=0"], "suite scenes:n=0: 'n=0', expected full, or *", id="scenes"),
    pytest.param(["--imgedit-suite=risebench:nowhere"], "*no data_total.json or *in nowhere", id="risebench"),
    pytest.param(["--imgedit-editor=nope"], "unknown editor 'nope', expected one of *", id="editor"),
    pytest.param(["--imgedit-editor=diffusers"], "*needs an argument, expected diffusers:MODEL", id="no-model"),
    pytest.param(["--imgedit-editor=diffusers:/nowhere"], "*diffusers:/nowhere: no such folder", id="model"),
    pytest.param(["--imgedit-editor=folder:nowhere"], "*folder:nowhere: no such folder", id="folder"),
    pytest.param(["--imgedit-editor=nomodule:Class"], "*no module 'nomodule' with a source file on *", id="module"),
    pytest.param(["--imgedit-editor=fakes:Nothing"], "*defines no 'Nothing'", id="class"),
    pytest.param(["--imgedit-judge=reference:x"], "*takes no argument, found 'x'", id="argument"),
    pytest.param(["--imgedit-judge=qwen-vl:./nowhere"], "*qwen-vl:./nowhere: no such folder", id="judge"),
    pytest.param(["--imgedit-set=editor.delai=1"], "editor.delai: no such argument is taken by identity", id="param"),
    pytest.param(["--imgedit-set=nothing"], "*expected SECTION.KEY=VALUE*", id="set"),
    pytest.param(["--imgedit-set=suit.spec=x"], "[[]suit[]]: unknown section, expected one of: suite, *", id="section"),
    pytest.param(["--imgedit-set=judge.rubric=x"], "judge.rubric: unknown rubric 'x', expected *aspects*", id="rubric"),
    pytest.param(["--imgedit-set=judge.temperature=nan"], "judge.temperature: nan, expected finite*", id="nan"),
    pytest.param(["--imgedit-seeds=0"], "--imgedit-seeds: * greater than or equal to 1, found '0'", id="seeds"),
    pytest.param(["--imgedit-set=judge.batch_size=x"], "judge.batch_size: expected 'auto' or a count*", id="batch"),
    pytest.param(["--imgedit-set=suite.fields.x='y'"], "suite.fields: *'scenes' has fixed fields*", id="fields"),
    pytest.param(["--imgedit-stage=edits"], "--imgedit-stage: * 'all', 'edit', 'score' or 'report'*", id="stage"),
    pytest.param(["--imgedit-executor=mpi"], "--imgedit-executor: *'local'*", id="executor"),
    pytest.param(["--imgedit-fail-under=overall"], "*'overall': expected FIELD:MIN*", id="gate"),
    pytest.param(["--imgedit-fail-under=物理:3", "--imgedit-fail-under=physics:4"], "*given twice*", id="gate-alias"),
    pytest.param(["--imgedit-editor=sys:path"], "*no module 'sys' with a source file*", id="builtin-module"),
    pytest.param(["--imgedit-editor=broken:X"], "*broken.py:1: *expected a Python module*", id="syntax-error"),
    pytest.param(["--imgedit-set=run.fresh=true"], "*expected SECTION.KEY=VALUE*", id="set-run"),
    pytest.param(["--imgedit-set=suite.spec='a'", "--imgedit-set=suite.spec.b=1"], "*expected a table", id="set-table"),
    pytest.param(["--imgedit-fail-under=overall:nan"], "*expected a number from 0 to 10", id="gate-nan"),
    pytest.param(["--imgedit-fail-under=phisics:3"], "*unknown field 'phisics', expected *physics*", id="gate-field"),
    pytest.param(["--imgedit-fail-under=causal:3", "--imgedit-fail-under=causal:4"], "*given twice*", id="gate-twice"),
    pytest.param(["--imgedit-max-errors=1.5"], "*fraction from 0.0 to 1.0*", id="max-errors"),
    pytest.param(["--imgedit-json=."], ".: cannot be written, expected the path of a file", id="copy-folder"),
    pytest.param(["--imgedit-stage=edit", "--imgedit-fail-under=overall:3"], "*scores nothing*", id="gate-stage"),
    pytest.param(["--imgedit-set=editor.device=cuda"], "editor.device: no such argument is taken*", id="device"),
    pytest.param(["--imgedit-config=nowhere.toml"], "*nowhere.toml: No such file *, expected a TOML file", id="config"),
]


@pytest.mark.parametrize(("options", "line"), BAD_OPTIONS)
def test_bad_option_exits_4_with_one_line_and_starts_nothing(bench, options, line):
    (bench.path / "broken.py").write_text("class X(:\n")
    result = bench.run(*options)
    assert result.ret == 4
    errors = [text for text in result.errlines if text.strip()]
    assert len(errors) == 1, errors
    result.stderr.fnmatch_lines([f"ERROR: {line}"])
    assert not (bench.path / ".imgedit").exists()


BAD_CONFIGS = [
    pytest.param("[editor\n", 1, "not valid TOML*", id="syntax"),
    pytest.param(
        "[suite]\nspec = 'scenes'\nlimt = 3\n", 3, "suite.limt: unknown key, expected one of: spec, *", id="key"
    ),
    pytest.param("\n[worker]\ngpus = '0'\n", 2, "[[]worker[]]: unknown section*", id="section"),
    pytest.param(
        "[workers]\nload_concurrency = 'two'\n", 2, "workers.load_concurrency: *integer*found 'two'", id="type"
    ),
    pytest.param(
        "[editor]\nspec = 'identity'\nsteps = 3\n", 3, "editor.steps: no such argument is taken by identity", id="param"
    ),
    pytest.param("spec = 'identity'\n", 1, "top-level key 'spec', expected it in a section", id="top"),
    pytest.param("[run]\nfresh = true\n", 1, "unknown section [[]run[]]", id="run"),
    pytest.param(
        "[gates.fail_under]\noverall = 12\n", 1, "gates.fail_under: *expected a number from 0 to 10*", id="gate"
    ),
]


@pytest.mark.parametrize(("text", "number", "line"), BAD_CONFIGS)
def test_mistake_in_a_config_is_named_by_file_and_line(bench, text, number, line):
    (bench.path / "bad.toml").write_text(text)
    result = bench.run("--imgedit-config=bad.toml")
    assert result.ret == 4
    result.stderr.fnmatch_lines([f"ERROR: *bad.toml:{number}: {line}"])


def test_command_line_wins_over_set_over_toml_over_ini(bench):
    (bench.path / "pytest.ini").write_text("[pytest]\nimgedit_editor = blank\nimgedit_limit = 3\nimgedit_seeds = 2\n")
    (bench.path / "config.toml").write_text("[editor]\nspec = 'identity'\n[suite]\nlimit = 2\n")
    bench.run("--imgedit-config=config.toml", "--imgedit-set=suite.limit=4", "--imgedit-limit=1", "-k", "social")
    document = bench.results
    assert document["editor"]["spec"] == "identity"
    assert len(document["items"]) == 1
    assert len(document["items"][0]["seeds"]) == 2


def test_own_rubric_from_a_file_is_used_and_hashed(bench):
    (bench.path / "mine.toml").write_text(
        'aspects = ["like"]\nscore = "like / 2"\nsystem = "You grade."\nreminder = "Again: {{ problem }}"\n'
        'user = "{{ source }}{{ edited }}{{ title }}: {{ instruction }}"\n'
        '[categories.default]\ntitle = "any"\ncriteria = ["nice"]\n'
    )
    (bench.path / "mine_judge.py").write_text(
        "from pytest_imgedit import Answer\n"
        "class Judge:\n"
        "    def __init__(self, *, device): pass\n"
        "    def answer(self, questions):\n"
        "        assert questions[0].system == 'You grade.'\n"
        "        assert questions[0].parts[:2] == (('image', 'source'), ('image', 'edited'))\n"
        "        return [Answer('like: 9') for _ in questions]\n"
    )
    (bench.path / "config.toml").write_text(
        '[judge]\nspec = "mine_judge:Judge"\nrubric = "mine"\n[rubrics.mine]\nfile = "mine.toml"\n'
    )
    bench.run("--imgedit-config=config.toml", "--imgedit-limit=1").assert_outcomes(passed=5)
    assert bench.results["overall"]["macro"]["mean"] == 4.5
    assert bench.results["judge"]["rubric"] == "mine"
    assert len(bench.results["judge"]["rubric_sha256"]) == 64


@pytest.mark.parametrize("name", ["qwen-image-edit", "qwen-image-edit-plus", "flux-kontext", "one-gpu"])
def test_ready_config_is_valid(bench, name, pytestconfig):
    config = pytestconfig.rootpath / "benchmarks" / f"{name}.toml"
    result = bench.run(f"--imgedit-config={config}", "--imgedit-gpus=none", "--co", "-q")
    assert result.ret == 0, result.stderr.str()
