"""Bad options, configs and protocols exit 4 with one line before anything starts."""

from __future__ import annotations

import json

import pytest

BAD_OPTIONS = [
    pytest.param(
        ["--imgedit-gpus=5-0"], "--imgedit-gpus=5-0: '5-0' counts down, expected *", id="gpus-down"
    ),
    pytest.param(["--imgedit-gpus=0,0"], "*a GPU is named twice*", id="gpus-twice"),
    pytest.param(["--imgedit-gpus=97"], "*no GPU 97, this machine shows *", id="gpu-absent"),
    pytest.param(
        ["--imgedit-gpus-per-worker=2", "--imgedit-gpus=none"],
        "*=2: no GPU, without which a model of this kind *",
        id="group",
    ),
    pytest.param(
        ["--imgedit-suite=nope"], "unknown suite 'nope', expected one of *scenes*", id="suite"
    ),
    pytest.param(
        ["--imgedit-suite=nope.json"], "nope.json: no such file, expected *", id="suite-file"
    ),
    pytest.param(
        ["--imgedit-suite=scenes:n=0"], "suite scenes:n=0: 'n=0', expected full, or *", id="scenes"
    ),
    pytest.param(
        ["--imgedit-suite=risebench:nowhere"],
        "suite risebench:nowhere: no folder 'nowhere', expected *",
        id="risebench",
    ),
    pytest.param(
        ["--imgedit-editor=nope"], "unknown editor 'nope', expected one of *", id="editor"
    ),
    pytest.param(
        ["--imgedit-editor=diffusers"],
        "*needs an argument, expected diffusers:MODEL",
        id="no-model",
    ),
    pytest.param(
        ["--imgedit-editor=diffusers:/nowhere"], "*diffusers:/nowhere: no such folder", id="model"
    ),
    pytest.param(
        ["--imgedit-editor=folder:nowhere"], "*folder:nowhere: no such folder", id="folder"
    ),
    pytest.param(
        ["--imgedit-editor=nomodule:Class"],
        "*no module 'nomodule' with a source file in *; move it to one of these, *",
        id="module",
    ),
    pytest.param(["--imgedit-editor=fakes:Nothing"], "*defines no 'Nothing'", id="class"),
    pytest.param(["--imgedit-judge=reference:x"], "*takes no argument, found 'x'", id="argument"),
    pytest.param(
        ["--imgedit-judge=qwen-vl:./nowhere"], "*qwen-vl:./nowhere: no such folder", id="judge"
    ),
    pytest.param(
        ["--imgedit-set=editor.delai=1"],
        "editor.delai: no such argument is taken by identity",
        id="param",
    ),
    pytest.param(["--imgedit-set=nothing"], "*expected SECTION.KEY=VALUE*", id="set"),
    pytest.param(
        ["--imgedit-set=suit.spec=x"],
        "[[]suit[]]: unknown section, expected one of: suite, *",
        id="section",
    ),
    pytest.param(
        ["--imgedit-set=judge.protocol=x"],
        "unknown protocol 'x', expected *aspects*",
        id="protocol",
    ),
    pytest.param(
        ["--imgedit-set=judge.temperature=nan"],
        "judge.temperature: nan, expected finite*",
        id="nan",
    ),
    pytest.param(
        ["--imgedit-seeds=0"],
        "--imgedit-seeds: * greater than or equal to 1, found '0'",
        id="seeds",
    ),
    pytest.param(
        ["--imgedit-set=judge.batch_size=x"],
        "judge.batch_size: expected 'auto' or a count*",
        id="batch",
    ),
    pytest.param(
        ["--imgedit-set=suite.fields.x='y'"],
        "suite.fields: *'scenes:n=10' has fixed fields*",
        id="fields",
    ),
    pytest.param(
        ["--imgedit-stage=edits"],
        "--imgedit-stage: * 'all', 'edit', 'score' or 'report'*",
        id="stage",
    ),
    pytest.param(["--imgedit-executor=mpi"], "--imgedit-executor: *'local'*", id="executor"),
    pytest.param(["--imgedit-fail-under=overall"], "*'overall': expected FIELD:NUMBER*", id="gate"),
    pytest.param(
        ["--imgedit-min-win=0.5"],
        "*'0.5': expected FIELD:SHARE, such as overall:0.5*",
        id="gate-on-duels",
    ),
    pytest.param(
        ["--imgedit-fail-under=物理:3", "--imgedit-fail-under=physics:4"],
        "*given twice*",
        id="gate-alias",
    ),
    pytest.param(
        ["--imgedit-editor=sys:path"], "*no module 'sys' with a source file*", id="builtin-module"
    ),
    pytest.param(
        ["--imgedit-editor=broken:X"], "*broken.py:1: *expected a Python module*", id="syntax-error"
    ),
    pytest.param(["--imgedit-set=run.fresh=true"], "*expected SECTION.KEY=VALUE*", id="set-run"),
    pytest.param(
        ["--imgedit-set=suite.spec='a'", "--imgedit-set=suite.spec.b=1"],
        "*expected a table",
        id="set-table",
    ),
    pytest.param(
        ["--imgedit-fail-under=overall:nan"], "*expected a number from 0 to 10", id="gate-nan"
    ),
    pytest.param(
        ["--imgedit-fail-under=phisics:3"],
        "*unknown field 'phisics', expected *physics*",
        id="gate-field",
    ),
    pytest.param(
        ["--imgedit-fail-under=causal:3", "--imgedit-fail-under=causal:4"],
        "*given twice*",
        id="gate-twice",
    ),
    pytest.param(["--imgedit-max-errors=1.5"], "*fraction from 0.0 to 1.0*", id="max-errors"),
    pytest.param(
        ["--imgedit-json=."], ".: cannot be written, expected the path of a file", id="copy-folder"
    ),
    pytest.param(
        ["--imgedit-stage=edit", "--imgedit-fail-under=overall:3"],
        "*scores nothing*",
        id="gate-stage",
    ),
    pytest.param(
        ["--imgedit-stage=edit", "--imgedit-controls"],
        "*scores nothing, as --imgedit-controls *",
        id="trial",
    ),
    pytest.param(
        ["--imgedit-judge-repeats=-1"],
        "--imgedit-judge-repeats: *or equal to 0, found '-1'",
        id="repeats",
    ),
    pytest.param(
        ["--imgedit-max-drop=overall:0"],
        "gates.max_drop: nothing to compare with, expected *",
        id="drop",
    ),
    pytest.param(
        ["--imgedit-max-collapsed=1"],
        "gates.max_collapsed: nothing to compare with, *",
        id="collapsed",
    ),
    pytest.param(
        ["--imgedit-max-collapsed=x"], "*'x': expected a count or a fraction *", id="collapsed-text"
    ),
    pytest.param(["--imgedit-min-coverage=2"], "*less than or equal to 1*", id="coverage"),
    pytest.param(
        ["--imgedit-compare=main"],
        "main: no such baseline or run, *baselines has none (--imgedit-save makes one), *",
        id="compare",
    ),
    pytest.param(
        ["--imgedit-compare=latest"],
        "latest: *.imgedit has no finished run: *",
        id="compare-latest",
    ),
    pytest.param(
        ["--imgedit-compare=./x.json"],
        "./x.json: no such baseline or run, expected a path, *",
        id="compare-path",
    ),
    pytest.param(
        ["--imgedit-save=../x"],
        "--imgedit-save=../x: expected a name of letters, *",
        id="save-path",
    ),
    pytest.param(
        ["--imgedit-save=latest"],
        "--imgedit-save=latest: expected a name *, not 'latest'",
        id="save-latest",
    ),
    pytest.param(
        ["--imgedit-name=a b"], "--imgedit-name=a b: expected a name of letters, *", id="name"
    ),
    pytest.param(
        ["--imgedit-set=gates.alpha=0.7"], "gates.alpha: *less than 0.5, found 0.7", id="alpha"
    ),
    pytest.param(
        ["--imgedit-set=gates.margin=0"], "gates.margin: *greater than 0, found 0", id="margin"
    ),
    pytest.param(
        ["--imgedit-set=editor.device=cuda"],
        "editor.device: no such argument is taken*",
        id="device",
    ),
    *(
        pytest.param(
            [f"--imgedit-gpus={text}"],
            f"--imgedit-gpus={text}: *expected a list such as *",
            id=f"gpus-{text}",
        )
        for text in ("a-b", "", "0,,1", "0-", "-1", "0-2-4", "1_0", "0-99999999999", "1.0", "0;1")
    ),
    pytest.param(
        ["--imgedit-gpus=０"],
        "--imgedit-gpus=０: '０', expected a list such as *",
        id="gpus-full-width",
    ),
    pytest.param(
        ["--imgedit-seeds=1_0"],
        "--imgedit-seeds: expected a number, found '1_0'",
        id="seeds-underscore",
    ),
    pytest.param(
        ["--imgedit-limit=１"],
        "--imgedit-limit: expected a number, found '１'",
        id="limit-full-width",
    ),
    pytest.param(
        ["--imgedit-max-errors=1_0"],
        "*'1_0': expected a count or a fraction *",
        id="max-errors-underscore",
    ),
    pytest.param(
        ["--imgedit-json=x", "--imgedit-md=x"], "x: asked for as two reports, *", id="copies-alike"
    ),
    pytest.param(
        ["--imgedit-config=/dev/zero"],
        "/dev/zero: not a regular file, expected *",
        id="config-device",
    ),
    pytest.param(["--imgedit-seeds=-1"], "--imgedit-seeds: *, found '-1'", id="seeds-negative"),
    pytest.param(["--imgedit-limit=0"], "--imgedit-limit: *, found '0'", id="limit"),
    pytest.param(
        [f"--imgedit-set=suite.limit={'9' * 5000}"], "--imgedit-limit: *", id="5000-digits"
    ),
    pytest.param(
        ["--imgedit-set=judge.batch_size=0"], "judge.batch_size: expected 'auto' *", id="batch-zero"
    ),
    *(
        pytest.param(
            [f"--imgedit-set=workers.{name}={value}"], f"workers.{name}: *", id=f"{name}-{value}"
        )
        for name in ("edit_timeout", "judge_timeout", "load_timeout")
        for value in ("0", "-1", "nan", "inf", "'soon'")
    ),
    pytest.param(
        ["--imgedit-fail-under=overall:inf"], "*expected a number from 0 to 10", id="gate-infinite"
    ),
    pytest.param(
        ["--imgedit-fail-under=overall:-1"], "*expected a number from 0 to 10", id="gate-negative"
    ),
    pytest.param(
        ["--imgedit-fail-under=overall:10.1"], "*expected a number from 0 to 10", id="gate-over"
    ),
    pytest.param(
        ["--imgedit-limit=1", "--imgedit-fail-under=physics:3"],
        "--imgedit-fail-under: 'physics' has 1 of the selected pairs, expected at least 2",
        id="gate-one-pair",
    ),
    pytest.param(
        ["-o", "imgedit_gpu=0"],
        "*unknown key 'imgedit_gpu', expected imgedit_config = FILE*",
        id="ini-key",
    ),
    pytest.param(
        ["--imgedit-suite=scenes:n=999999999999"], "*expected full, or n=NUMBER *", id="scenes-many"
    ),
    pytest.param(
        [f"--imgedit-suite={'a' * 5000}.json"], "*File name too long*", id="suite-name-long"
    ),
    pytest.param(
        ["--imgedit-editor=\x1b[31mred"], r"unknown editor '\x1b[[]31mred'*", id="terminal-escape"
    ),
    pytest.param(
        ["--imgedit-judge=none", "--imgedit-metric=psnr,psnr"],
        "--imgedit-metric=psnr: another one is named 'psnr', expected *",
        id="metric-twice",
    ),
    pytest.param(
        ["--imgedit-judge=none", "--imgedit-metric=psnr,sim"],
        "unknown metric 'sim'*",
        id="metric-unknown",
    ),
    pytest.param(
        ["--imgedit-config=nowhere.toml"],
        "*nowhere.toml: No such file *, expected a TOML file",
        id="config",
    ),
]


@pytest.mark.parametrize(("options", "line"), BAD_OPTIONS)
def test_bad_option_exits_4_with_one_line_and_starts_nothing(bench, options, line):
    (bench.path / "broken.py").write_text("class X(:\n")
    bench.refuses(line, *options)


BAD_CONFIGS = [
    pytest.param("[editor\n", 1, "not valid TOML*", id="syntax"),
    pytest.param(
        "[suite]\nspec = 'scenes'\nlimt = 3\n",
        3,
        "suite.limt: unknown key, expected one of: spec, *",
        id="key",
    ),
    pytest.param("\n[worker]\ngpus = '0'\n", 2, "[[]worker[]]: unknown section*", id="section"),
    pytest.param(
        "[workers]\nload_concurrency = 'two'\n",
        2,
        "workers.load_concurrency: *a count*found 'two'",
        id="type",
    ),
    pytest.param(
        "[editor]\nspec = 'identity'\nsteps = 3\n",
        3,
        "editor.steps: no such argument is taken by identity",
        id="param",
    ),
    pytest.param(
        "spec = 'identity'\n", 1, "top-level key 'spec', expected it in a section", id="top"
    ),
    pytest.param(
        "[run]\nfresh = true\n", 2, "run.fresh: not a key of a config, expected run.reuse", id="run"
    ),
    pytest.param(
        "[gates.fail_under]\noverall = 12\n",
        1,
        "gates.fail_under: *expected a number from 0 to 10*",
        id="gate",
    ),
    pytest.param(
        "[workers]\nedit_timeout = 0\n",
        2,
        "workers.edit_timeout: *greater than 0, found 0",
        id="timeout",
    ),
    pytest.param("[editor]\nx = " + "[" * 5000 + "]" * 5000, 1, "not valid TOML: *", id="deep"),
    pytest.param("[suite]\nlimit = " + "9" * 5000, 1, "not valid TOML: *", id="5000-digits"),
    pytest.param("[suite]\nlimit = 1\nlimit = 2\n", 3, "not valid TOML: *", id="key-twice"),
    pytest.param(
        "[judge]\nspec = 'qwen-vl:.'\ntrust_remote_code = true\n[gates]\nmax_errors = -1\n",
        5,
        "gates.max_errors: -1: expected a count of at least 0*",
        id="max-errors",
    ),
]


@pytest.mark.parametrize(("text", "number", "line"), BAD_CONFIGS)
def test_mistake_in_a_config_is_named_by_file_and_line(bench, text, number, line):
    (bench.path / "bad.toml").write_text(text)
    bench.refuses(f"*bad.toml:{number}: {line}", "--imgedit-config=bad.toml")


def test_config_that_is_not_utf8_or_too_large_is_refused(bench):
    (bench.path / "bad.toml").write_bytes("[suite]\nspec = 'é'\n".encode("latin-1"))
    bench.refuses(
        "*bad.toml: not UTF-8 (byte 16), expected a TOML file", "--imgedit-config=bad.toml"
    )
    with (bench.path / "bad.toml").open("wb") as file:
        file.truncate(2**30)
    bench.refuses("*bad.toml: 1073741824 bytes, expected at most *", "--imgedit-config=bad.toml")


CALL = {"name": "a", "user": "{{ source }}{{ edited }}", "reminder": "again"}


def protocol(item="like", **changes):
    """A config with a protocol of its own, in which keys of its call or of its score differ."""
    keys = "".join(f"{name} = {json.dumps(text)}\n" for name, text in {**CALL, **changes}.items())
    return (
        '[judge]\nspec = "fakes:Constant"\nprotocol = "mine"\n'
        f"[[protocols.mine.calls]]\n{keys}"
        '[protocols.mine.calls.reply]\nform = "lines"\nnames = ["like"]\n'
        f"[protocols.mine.score]\nitem = {json.dumps(item)}\n"
        '[protocols.mine.categories.default]\ntitle = "any"\ncriteria = ["nice"]\n'
    )


BAD_PROTOCOLS = [
    pytest.param(
        {"user": "{% if %}{{ source }}{{ edited }}"}, "template (template line 1): *", id="syntax"
    ),
    pytest.param(
        {"user": "{{ source }}{{ edited }}{{ nothing }}"}, "*'nothing' is undefined", id="variable"
    ),
    pytest.param({"user": "{{ source }}"}, "user shows *expected * and *", id="image-missing"),
    pytest.param({"user": "{{ source.__class__.__mro__ }}{{ edited }}"}, "*unsafe*", id="class"),
    pytest.param(
        {"user": "{{ source }}{{ edited }}{{ ''.format.__globals__ }}"}, "*unsafe*", id="globals"
    ),
    pytest.param(
        {"user": "{{ source }}{{ edited }}{% include '/etc/passwd' %}"}, "*no loader*", id="include"
    ),
    pytest.param(
        {"user": "{{ source }}{{ edited }}{% for i in range(10**9) %}{% endfor %}"},
        "*Range too big*",
        id="endless",
    ),
    pytest.param({"item": "5 if like.__class__ else 5"}, "*unsafe*", id="formula-class"),
    pytest.param(
        {"item": "().__class__.__base__.__subclasses__()|length * 0"},
        "*unsafe*",
        id="formula-subclasses",
    ),
    pytest.param({"item": "like * 2"}, "*score is 20.0, expected 0 to 10*", id="formula-range"),
    pytest.param({"reminder": "{{ problem.__init__ }}"}, "*unsafe*", id="reminder"),
]


@pytest.mark.parametrize(("changes", "line"), BAD_PROTOCOLS)
def test_mistake_or_break_out_in_a_protocol_is_refused(bench, changes, line):
    (bench.path / "c.toml").write_text(protocol(**changes))
    bench.refuses(f"*[[]protocols.mine[]]: {line}", "--imgedit-config=c.toml")


def test_unknown_ini_key_is_refused_where_nothing_else_is_set(bench):
    (bench.path / "pytest.ini").write_text("[pytest]\nimgedit_gpus = 0-5\n")
    bench.refuses(
        "*pytest.ini: unknown key 'imgedit_gpus', expected imgedit_config = FILE, a TOML config "
        "with [[]workers[]] *"
    )


def test_template_that_fails_on_one_pair_is_refused_by_its_name(bench):
    user = (
        "{{ source }}{{ edited }}{% if instruction|length > 30 %}{{ instruction.foo }}{% endif %}"
    )
    (bench.path / "c.toml").write_text(protocol(user=user))
    bench.refuses(
        "protocol mine: it fails on pair 'physics-*': *has no attribute 'foo'",
        "--imgedit-config=c.toml",
    )
