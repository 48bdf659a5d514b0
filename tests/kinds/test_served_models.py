"""Judges and editors behind a real HTTP server, which also fails in every way that it is told
to.
"""

import re

import numpy as np
import pytest
from model_server import ModelServer
from PIL import Image


@pytest.fixture(scope="module")
def served():
    with ModelServer() as server:
        yield server
        server.shutdown()


@pytest.fixture
def server(served):
    served.reset()
    return served


EDITED = ("--imgedit-editor=scenes", "--imgedit-set=editor.num_inference_steps=2")


def judge(server, *more, editor=("--imgedit-editor=shuffled",), first="false"):
    return (
        "--imgedit-suite=scenes",
        f"--imgedit-judge=openai:{server.url}#scenes",
        f"--imgedit-set=judge.ask_first={first}",
        "--imgedit-limit=2",
        *editor,
        *more,
    )


def verdicts(bench, but=""):
    return {
        name: (item["score"], item["aspects"], item["seeds"][0]["verdict"]["replies"]["aspects"])
        for name, item in bench.items.items()
        if name != but
    }


def edited(bench):
    """Pixels of the edits of the latest run by pair."""
    blobs = {name: item["seeds"][0]["edit"]["blob"] for name, item in bench.items.items()}
    folder = bench.path / ".imgedit" / "blobs"
    return {
        name: np.asarray(Image.open(folder / blob[:2] / f"{blob}.png"), int)
        for name, blob in blobs.items()
    }


@pytest.mark.full
def test_scores_are_those_of_the_same_judge_in_process(bench, server):
    """Costly: the embedded judge answers in a worker and behind a server, whose agreement is the
    point.
    """
    bench.run(
        *(option for option in judge(server, editor=EDITED) if "judge" not in option),
        "--imgedit-judge=scenes",
    )
    expected = verdicts(bench)
    server.replies.clear()  # kept ones come too fast to be asked for side by side
    prices = ("--imgedit-set=judge.price_in=2", "--imgedit-set=judge.price_out=8.0")
    result = bench.run(*judge(server, *prices, editor=EDITED))
    assert verdicts(bench) == expected
    assert len(server.asked) == 10
    assert 1 < server.most <= 8
    assert bench.results["judge"]["usage"] == {"tokens_in": 1000, "tokens_out": 100, "cost": 0.0028}
    result.stdout.fnmatch_lines(["judge: 1,000 tokens in, 100 out, cost 0.0028"])
    other = ("--imgedit-set=judge.concurrency=2", "--imgedit-set=judge.timeout=9")
    again = bench.run(*judge(server, *other, editor=EDITED))
    assert again.ret == result.ret
    assert len(server.asked) == 10  # how it is asked is no part of what it said
    assert bench.timing["verdicts_cached"] == 10


@pytest.mark.full
def test_plan_bills_what_the_server_is_asked(bench, server):
    server.reply = "instruction: 7\npreservation: 7\nrealism: 7"

    def asked_and_billed(*options):
        server.asked.clear()
        gated = judge(server, "--imgedit-fail-under=overall:1", *options, first="true")
        result = bench.run(*gated)
        result.stdout.no_fnmatch_line("*without the reason why they ended*")
        (line,) = [line for line in result.outlines if "plan: judge: " in line]
        lowest, stored = re.search(r"judge: ([\d,]+)\b.*, ([\d,]+) in the store", line).groups()
        return len(server.asked), int(lowest), int(stored), line

    asked, billed, stored, line = asked_and_billed("-kphysics")
    assert asked == billed > 2 + 5 + 1
    assert (stored, "as in run" in line) == (0, False)
    repeats = "--imgedit-judge-repeats=1"
    more, billed, stored, line = asked_and_billed(repeats)
    assert more == billed > 0
    assert stored >= asked
    assert f"{float(f'{100 * more:.2g}'):,.0f} to " in line  # by what the server counted before
    assert line.endswith(f" output tokens, as in run {bench.runs[-2].name}")
    asked, billed, stored, line = asked_and_billed(repeats)
    assert asked == billed == 0
    assert line.endswith(f"plan: judge: 0 questions, {stored} in the store")


@pytest.mark.full
def test_scoring_runs_beside_editing(bench, server):
    bench.run(*judge(server, editor=EDITED))
    assert bench.timing["swaps"] == 0
    assert bench.log_says("judge-0 (CPU): loading")
    log = (bench.runs[-1] / "run.log").read_text()
    assert log.index("judge-0 (CPU): loading") < log.index("edit: 10/10,")


def test_faults_lose_and_invent_no_verdict(bench, server):
    bench.run(*judge(server))
    expected = verdicts(bench)
    assert len(set(map(str, expected.values()))) > 3
    server.faults.extend([429, 500, "half", 503, "hang", 429, 502])
    bench.run(*judge(server, "--imgedit-set=judge.timeout=2", "--imgedit-fresh"))
    assert not server.faults
    assert verdicts(bench) == expected


def test_what_stays_broken_is_an_error_with_its_reason(bench, server):
    server.faults.extend([400, "refusal", "empty", "garbage"])
    result = bench.run(*judge(server, "--imgedit-set=judge.concurrency=1"))
    assert result.ret == 1
    errors = [item["error"] for item in bench.items.values() if item["error"]]
    assert {error["kind"] for error in errors} == {"judge", "refused"}
    messages = sorted(error["message"].partition(": ")[0] for error in errors)
    assert messages == [
        "an answer without text (finish_reason 'stop')",
        "the model refuses to answer",
        "the server answered 'not JSON', expected a chat completion",
        "the server answered 400",
    ]
    bench.run(*judge(server, "--imgedit-set=judge.concurrency=1"))
    assert bench.timing["verdicts_cached"] == 6
    assert not bench.error_kinds


def test_a_reply_that_was_cut_is_no_grade(bench, server):
    spec, model = "--imgedit-suite=scenes", f"--imgedit-judge=openai:{server.url}#scenes"
    settings = ("--imgedit-set=judge.concurrency=1", "--imgedit-set=judge.ask_first=false")
    options = (spec, model, "--imgedit-limit=2", "-kphysics", *settings)
    bench.run(*options)
    whole = verdicts(bench)
    assert all(reply.endswith("realism: 10") for _, _, reply in whole.values())
    server.asked.clear()
    server.faults.extend(["length", None, "length", "length"])
    bench.run(*options, "--imgedit-fresh")
    assert [asked["max_tokens"] for asked in server.asked] == [128, 128, 256, 512]
    assert bench.results["judge"]["usage"]["tokens_out"] == 40
    (cut,) = [name for name, item in bench.items.items() if item["error"]]
    assert bench.error_kinds[cut] == "unreadable_reply"
    error = bench.items[cut]["error"]
    assert (
        error["message"]
        == "the reply was cut short, expected a larger judge.max_new_tokens or shorter replies"
    )
    assert error["reply"].endswith("realism: 1")
    del whole[cut]
    assert verdicts(bench, but=cut) == whole
    assert "too long" not in str(server.asked)
    server.asked.clear()
    server.faults.append("length")
    bench.run(*options, "--imgedit-fresh")
    assert [asked["max_tokens"] for asked in server.asked] == [128, 128, 256]
    assert not bench.error_kinds
    bench.run(*options)
    assert bench.timing["verdicts_cached"] == 2  # under the key of the first limit


def test_a_server_that_only_fails_is_given_up(bench, server):
    server.faults.extend([500] * 100)
    bench.run(*judge(server, "--imgedit-set=judge.retries=1"))
    messages = {item["error"]["message"] for item in bench.items.values()}
    assert messages == {"the server answered 500, tried 2 times: told to answer 500"}


def test_the_key_comes_from_the_environment_and_stays_there(bench, server, monkeypatch):
    server.key = "sk-very-secret-key-of-a-test"
    result = bench.run(*judge(server))
    assert result.ret == 4
    result.stderr.fnmatch_lines(
        [f"ERROR: {server.url} wants a key (401), expected one in OPENAI_API_KEY"]
    )
    assert bench.stored_edits() == 0  # it is asked before anything is edited
    monkeypatch.setenv("MY_ENDPOINT", server.key)
    server.faults.extend(["echo"])
    bench.run(*judge(server, "--imgedit-set=judge.api_key_env=MY_ENDPOINT"))
    (error,) = [item["error"]["message"] for item in bench.items.values() if item["error"]]
    assert error == "the server answered 400: no such key: Bearer ***"
    files = [path for path in (bench.path / ".imgedit").rglob("*") if path.is_file()]
    assert not [path for path in files if server.key.encode() in path.read_bytes()]


def test_a_server_that_is_not_there_ends_the_run_in_one_line(bench):
    result = bench.run(
        "--imgedit-judge=openai:http://127.0.0.1:9/v1#m",
        "--imgedit-suite=scenes",
        "--imgedit-limit=1",
    )
    assert result.ret == 4
    result.stderr.fnmatch_lines(["ERROR: http://127.0.0.1:9/v1 cannot be reached: *"])
    assert bench.stored_edits() == 0


@pytest.mark.parametrize(
    ("option", "line"),
    [
        (
            "--imgedit-judge=openai:localhost:8000#m",
            "openai:localhost:8000#m: no http or https URL, expected *",
        ),
        (
            "--imgedit-judge=openai:http://h/v1",
            "openai:http://h/v1: no model, expected openai:URL#MODEL*",
        ),
        (
            "--imgedit-judge=openai:http://me:pw@h/v1#m",
            "openai:…#m: a URL with credentials or a query, *",
        ),
        ("--imgedit-editor=openai-images:x#m", "openai-images:x#m: no http or https URL, *"),
    ],
)
def test_urls_are_checked_before_anything_starts(bench, option, line):
    bench.refuses(line, option, "--imgedit-suite=scenes")


@pytest.mark.parametrize(
    ("setting", "line"),
    [
        ("judge.api_key=sk-1234", "judge.api_key: a key comes from the environment, *"),
        ("judge.concurrency=0", "judge.concurrency: *greater than or equal to 1, found 0"),
        ("judge.temperature=warm", "judge.temperature: *"),
        ("judge.dtype=float16", "judge.dtype: no such argument is taken by openai:*"),
    ],
)
def test_parameters_are_checked_before_anything_starts(bench, setting, line):
    bench.refuses(
        line,
        "--imgedit-judge=openai:http://h/v1#m",
        f"--imgedit-set={setting}",
        "--imgedit-suite=scenes",
    )


@pytest.mark.full
def test_an_editor_behind_a_server_edits_as_in_process(bench, server):
    common = ("--imgedit-suite=scenes", "--imgedit-limit=1", "--imgedit-stage=edit")
    bench.run(*common, "--imgedit-editor=scenes", "--imgedit-set=editor.num_inference_steps=4")
    expected = edited(bench)
    server.faults.extend([429, "half"])
    editor = f"--imgedit-editor=openai-images:{server.url}#scenes"
    bench.run(
        *common, editor, "--imgedit-set=editor.send_seed=true", "--imgedit-set=editor.concurrency=2"
    )
    found = edited(bench)
    assert found.keys() == expected.keys()
    assert all(
        abs(found[name] - expected[name]).max() <= 4 for name in found
    )  # threads round differently
    assert len(bench.results["workers"]) == 1  # for two requests at a time
    assert {body["model"] for body in server.asked} == {b"scenes"}


def test_edits_that_do_not_come_are_errors(bench, server):
    server.faults.extend([400, "url"])
    editor = f"--imgedit-editor=openai-images:{server.url}#scenes"
    one = (
        "--imgedit-limit=1",
        "--imgedit-set=editor.concurrency=1",
        "--imgedit-set=editor.ask_first=false",
    )
    result = bench.run("--imgedit-suite=scenes", "--imgedit-stage=edit", editor, *one)
    assert result.ret == 1
    messages = sorted(item["error"]["message"] for item in bench.items.values() if item["error"])
    assert messages == [
        "RuntimeError: the server answered 400: told to answer 400",
        'the server sent a URL, expected an image; editor.response_format="b64_json" may help',
    ]
