"""Public benchmarks in miniature, from the folder that people have to the tables that the authors
print.
"""

from __future__ import annotations

import base64
import json
import re
import statistics
from pathlib import Path

import pytest
from miniatures import ANY_VERSION, MAKE, number_of, picture
from PIL import Image

from pytest_imgedit.report.read import read_results

JUDGE = "--imgedit-judge=miniatures:Judge"


@pytest.fixture
def made(bench):
    def make(name, **changes):
        folder = bench.path / name
        folder.mkdir()
        MAKE[name](folder, **changes)
        return f"--imgedit-suite={name}:{name}"

    return make


def rows(bench):
    """The rows of the protocol's tables by name."""
    return {row["name"]: row["value"] for row in bench.results["protocol"]["rows"]}


@pytest.mark.parametrize("variant", ["strict", "compat"])
@pytest.mark.parametrize(
    ("name", "pairs", "calls", "expected"),
    [
        ("gedit", 11, 22, {"score": 4.0, "SC": 4.0, "PQ": 4.0, "score, intersection": 4.0}),
        ("imgedit", 9, 9, {"score, over groups": 4.0, "score, over items": 4.0}),
        (
            "kris",
            20,
            60,
            {"Overall": 100 * (10 * 3 / 4 + 10 * 11 / 16) / 20, "Temporal Prediction": 75.0},
        ),
        (
            "omnicontext",
            8,
            16,
            {"Average": 20**0.5, "Average PF": 4.0, "scene_object": 20**0.5, "scene_object SC": 5},
        ),
        ("risebench", 8, 21, {"Logical score": 5.0, "Causal score": 4.0, "Overall accuracy %": 25}),
    ],
)
@pytest.mark.everyday_for(
    "gedit-11-22-expected0-strict",
    "imgedit-9-9-expected1-compat",
    "kris-20-60-expected2-strict",
    "omnicontext-8-16-expected3-compat",
    "risebench-8-21-expected4-compat",
)
def test_miniature_runs_by_its_own_protocol(bench, made, name, pairs, calls, expected, variant):
    result = bench.run(
        made(name),
        "--imgedit-editor=miniatures:SideBySide",
        JUDGE,
        ANY_VERSION,
        f"--imgedit-variant={variant}",
        "-v",
    )
    assert result.ret == 0, result.outlines[-20:]
    assert bench.results["judge"]["protocol"] == name
    times = 3 if (name, variant) == ("omnicontext", "compat") else 1
    assert (len(bench.items), bench.records("verdicts")) == (pairs, times * calls)
    found = rows(bench)
    assert {key: pytest.approx(found[key]) for key in expected} == {
        key: pytest.approx(value) for key, value in expected.items()
    }
    result.stdout.fnmatch_lines([f"protocol {name}@{variant}*this run: {pairs} of *"])


def counts(bench):
    """The numbers of values in the rows of the protocol's tables by name."""
    return {row["name"]: row["n"] for row in bench.results["protocol"]["rows"]}


OF_ONE = "Overall, pairs of one source image"
#: Of the pairs of one source, 10 have a fourth grade, which is lower.
VALUE_OF_ONE = pytest.approx(100 * (8 * 3 / 4 + 10 * 11 / 16) / 18)


def test_kris_names_its_total_with_and_without_pairs_of_several_sources(bench, made):
    editor = "--imgedit-editor=miniatures:SideBySide"
    result = bench.run(made("kris"), editor, JUDGE, ANY_VERSION)
    assert result.ret == 0
    names = [row["name"] for row in bench.results["protocol"]["rows"]]
    assert names[:2] == ["Overall", OF_ONE]
    assert (counts(bench)["Overall"], counts(bench)[OF_ONE]) == (20, 18)
    assert rows(bench)[OF_ONE] == VALUE_OF_ONE != rows(bench)["Overall"]
    result.stdout.fnmatch_lines(["Overall * 20 *", f"{OF_ONE} 18 *"])
    given = {name: item["seeds"][0]["edit"]["sources"] for name, item in bench.items.items()}
    assert {name for name, count in given.items() if count == 3} == {
        "temporal_prediction-1",
        "multi-element_composition-1",
    }
    assert len(bench.items["temporal_prediction-1"]["further"]) == 2


def test_worker_processes_get_all_sources_in_the_order_of_the_pair(bench, made):
    options = (made("kris"), "--imgedit-editor=miniatures:SideBySide", JUDGE, ANY_VERSION)
    few = ("-k", "temporal_prediction")
    bench.run_with_workers(*options, *few)
    (item,) = bench.items.values()
    blobs = bench.path / ".imgedit" / "blobs"
    bottom = (10, 40)
    shown = [
        Image.open(blobs / blob).getpixel(bottom) for blob in (item["source"], *item["further"])
    ]
    assert len(set(shown)) == 3
    blob = item["seeds"][0]["edit"]["blob"]
    edited = Image.open(blobs / blob[:2] / f"{blob}.png")
    assert [edited.getpixel((x, 40)) for x in (10, 31, 52)] == shown
    assert all(
        (blobs / path).with_suffix(".thumbnail.webp").is_file()
        for path in (item["source"], *item["further"])
    )


def test_kris_says_what_an_editor_of_one_source_cannot_edit(bench, made):
    options = ("--imgedit-editor=fakes:Slow", "--imgedit-set=editor.delay=0", JUDGE, ANY_VERSION)
    result = bench.run(made("kris"), *options)
    result.stdout.fnmatch_lines(
        [
            "*warning: 2 of 20 pairs have more source images than the one that editor fakes:Slow "
            "takes (temporal_prediction-1, multi-element_composition-1); they end in errors*"
        ]
    )
    assert sorted(bench.error_kinds.values()) == ["too_many_sources"] * 2
    assert (counts(bench)["Overall"], counts(bench)[OF_ONE]) == (18, 18)
    assert rows(bench)["Overall"] == rows(bench)[OF_ONE] == VALUE_OF_ONE
    assert result.ret == 1
    assert None in {row["mean"] for row in bench.results["categories"].values()}
    (run,) = bench.runs
    assert len(read_results(run / "results.json").items) == 20  # though categories have no mean
    result.stdout.fnmatch_lines(["*FAIL *max_errors: 2 of 20 pairs without a score, 0 allowed: *"])


def test_a_run_of_nothing_but_pairs_with_too_many_sources_is_refused(bench, made):
    suite = made("kris")
    several = ("-k", "temporal_prediction or multi-element_composition")
    result = bench.run(suite, "--imgedit-editor=fakes:Slow", JUDGE, ANY_VERSION, *several)
    assert result.ret == 4
    result.stderr.fnmatch_lines(
        [
            "ERROR: 2 of 2 pairs have more source images than the one that editor fakes:Slow takes "
            "(temporal_prediction-1, multi-element_composition-1); they end in errors (*); name an "
            "editor that takes them, or select other pairs"
        ]
    )
    assert len([line for line in result.errlines if line.strip()]) == 1


@pytest.mark.usefixtures("pytorch")
@pytest.mark.full
def test_miniatures_run_with_the_embedded_editor(bench, made):
    """Costly: the embedded editor loads and edits once for each benchmark."""
    for name in MAKE:
        steps = "--imgedit-set=editor.num_inference_steps=1"
        bench.run(made(name), "--imgedit-editor=scenes", steps, JUDGE, ANY_VERSION)
        several = sum(kind == "too_many_sources" for kind in bench.error_kinds.values())
        assert several == {"kris": 2, "omnicontext": 6}.get(name, 0)
        assert bench.timing["edits"] + several == len(bench.items)
        assert bench.timing["verdicts"] == bench.timing["edits"]


@pytest.mark.usefixtures("pytorch")
@pytest.mark.full
@pytest.mark.parametrize(("name", "several"), [("kris", 2), ("omnicontext", 6)])
def test_pairs_of_several_sources_run_through_a_pipeline(bench, made, tiny, name, several):
    """Costly: a tiny JoyImageEditPlus edits the pairs of a miniature, of which so many have several
    sources.
    """
    editor = f"--imgedit-editor=diffusers:{tiny('joyimage-plus')}"
    small = ("--imgedit-set=editor.num_inference_steps=1", "--imgedit-set=editor.area=65536")
    result = bench.run(made(name), editor, *small, JUDGE, ANY_VERSION)
    assert result.ret == 0, result.outlines[-20:]
    counts = [
        (1 + len(item["further"]), item["seeds"][0]["edit"]["sources"])
        for item in bench.results["items"]
    ]
    assert sum(sources > 1 for sources, _ in counts) == several
    assert all(sources == handed for sources, handed in counts)


ODD = "I cannot judge these images."


@pytest.mark.parametrize(
    ("name", "at", "dropped", "row", "value"),
    [
        ("gedit", "change 6", 1, "score", 4.0),
        ("imgedit", "change 3", 1, "score, over items", 4.0),
        ("kris", "prompt_quality", 0, "Natural Science", 100 * (6 * 2 * 3 + 6 * 2) / 18 / 4),
        ("risebench", "[prompt_logical_img_wo_q]", 0, "Logical accuracy %", 100.0),
        ("risebench", "change temporal_reasoning_1", 1, "Temporal accuracy %", 0.0),
    ],
)
@pytest.mark.everyday_for(
    "gedit-change 6-1-score-4.0", "risebench-change temporal_reasoning_1-1-Temporal accuracy %-0.0"
)
def test_unreadable_reply_is_an_error_under_strict_and_the_authors_rule_under_compat(
    bench, made, name, at, dropped, row, value
):
    options = (
        made(name),
        "--imgedit-editor=identity",
        JUDGE,
        ANY_VERSION,
        f"--imgedit-set=judge.odd={ODD}",
        f"--imgedit-set=judge.at={at}",
    )
    result = bench.run(*options, "--imgedit-variant=compat")
    statuses = [item["status"] for item in bench.items.values()]
    assert statuses.count("dropped") == dropped
    assert "judge_error" not in statuses
    assert rows(bench)[row] == pytest.approx(value)
    touched = bench.results["protocol"]["touched"]
    assert result.ret == bool(touched)
    if touched:
        result.stdout.fnmatch_lines(["*INVALID *compat replaced or dropped * more than*"])
    bench.run(*options)
    errors = [item["error"] for item in bench.items.values() if item["error"]]
    assert {error["kind"] for error in errors} <= {"unreadable_reply"}
    assert all(error["reply"] == ODD for error in errors)
    assert bool(touched) == bool(errors)


def test_half_a_reply_of_kris_keeps_its_grade_under_compat(bench, made):
    half = '{"instruction_score": 2}'
    result = bench.run(
        *(made("kris"), "--imgedit-editor=identity", JUDGE, ANY_VERSION),
        *(f"--imgedit-set=judge.odd={half}", "--imgedit-set=judge.at=[prompt_dual_evaluation]"),
        "--imgedit-variant=compat",
    )
    assert {item["status"] for item in bench.items.values()} == {"scored"}
    halves = [item for item in bench.items.values() if item["aspects"]["instruction"] == 2.0]
    assert len(halves) == bench.results["protocol"]["touched"] == 10
    assert not any("knowledge" in item["aspects"] for item in bench.items.values())
    result.stdout.fnmatch_lines(["compat: the authors' rule * 10"])


def test_compat_takes_its_unreadable_replies_from_the_store(bench, made):
    options = (
        *(made("kris"), "--imgedit-editor=identity", JUDGE, ANY_VERSION),
        *(f"--imgedit-set=judge.odd={ODD}", "--imgedit-set=judge.at=prompt_quality"),
        "--imgedit-variant=compat",
    )
    bench.run(*options)
    first = bench.results["protocol"]
    bench.run(*options)
    assert (bench.timing["verdicts"], bench.timing["verdicts_cached"]) == (0, 20)
    assert bench.results["protocol"] == first


def spoil_gedit_group(folder):
    import pyarrow.parquet as pq

    path = folder / "data" / "train-0.parquet"
    table = pq.read_table(path)
    pq.write_table(table.slice(2), path)


def spoil_kris_image(folder):
    (folder / "KRIS_Bench" / "physics" / "1.png").unlink()


def spoil_kris_category(folder):
    (folder / "KRIS_Bench" / "medicine" / "annotation.json").unlink()


def spoil_kris_truth(folder):
    path = folder / "KRIS_Bench" / "viewpoint_change" / "annotation.json"
    document = json.loads(path.read_text())
    document["1"]["gt_img"] = ""
    path.write_text(json.dumps(document))


def spoil_imgedit_prompt(folder):
    path = folder / "Benchmark" / "singleturn" / "judge_prompt.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "add": "another"}))


def spoil_rise_prompts(folder):
    (folder / "utils.py").unlink()


def spoil_imgedit_type(folder):
    path = folder / "Benchmark" / "singleturn" / "singleturn.json"
    pairs = json.loads(path.read_text())
    pairs["1000"]["edit_type"] = "adjust"
    path.write_text(json.dumps(pairs))


def spoil_nothing(folder):
    pass


BAD = [
    ("gedit", spoil_gedit_group, "", "suite gedit:gedit: no pairs of background_change, *"),
    ("gedit", spoil_nothing, "?language=zh", "*language=zh, expected one of en, cn*"),
    ("gedit", spoil_nothing, "?languge=cn", "*unknown key 'languge', *did you mean 'language'*"),
    ("gedit", spoil_nothing, "?per_category=x", "*per_category=x, expected a whole number"),
    ("kris", spoil_kris_image, "", "*no image *kris/KRIS_Bench/physics/1.png, expected it"),
    ("kris", spoil_kris_category, "", "*no pairs of medicine, expected every category*"),
    ("kris", spoil_kris_truth, "", "*viewpoint_change*no image 'reference', which its call *"),
    ("imgedit", spoil_imgedit_type, "", "*no pairs of add, expected every category*"),
    ("risebench", spoil_rise_prompts, "", "*no utils.py in it, expected *(judge.prompts=FOLDER)"),
]


@pytest.mark.parametrize(("name", "spoil", "query", "line"), BAD)
def test_a_folder_that_is_not_whole_is_refused_before_anything_starts(
    bench, made, name, spoil, query, line
):
    suite = made(name)
    spoil(bench.path / name)
    bench.refuses(line, f"{suite}{query}", JUDGE, ANY_VERSION)


def test_prompts_of_another_version_are_refused_by_their_sha256(bench, made):
    bench.refuses("*has the SHA-256 *, expected *another version*", made("imgedit"), JUDGE)


def test_a_subset_is_stratified_seeded_and_keeps_the_order(bench, made):
    suite = made("gedit", a_group=6)
    options = ("--imgedit-editor=identity", JUDGE, ANY_VERSION)
    bench.run(f"{suite}?per_category=2&seed=1", *options)
    first = list(bench.items)
    assert len(first) == 22
    assert first == sorted(first)
    bench.run(f"{suite}?per_category=2&seed=1", *options)
    assert list(bench.items) == first
    bench.run(f"{suite}?per_category=2&seed=2", *options)
    assert list(bench.items) != first


@pytest.mark.full
def test_chinese_and_the_intersection_are_other_pairs(bench, made):
    suite = made("gedit", a_group=4)
    options = ("--imgedit-editor=identity", JUDGE, ANY_VERSION)
    counts = {}
    for query in ("", "?language=cn", "?subset=intersection"):
        bench.run(f"{suite}{query}", *options)
        counts[query] = len(bench.items)
    assert counts == {"": 44, "?language=cn": 44, "?subset=intersection": 22}


def test_the_judge_is_shown_the_edit_in_the_size_of_the_source(bench, made):
    bench.run(
        made("gedit"),
        "--imgedit-editor=miniatures:Enlarge",
        "--imgedit-judge=miniatures:Sizes",
        ANY_VERSION,
    )
    assert bench.results["overall"]["macro"]["mean"] == 10.0


def test_rewritten_instructions_go_to_the_editor_alone(bench, made):
    suite = made("imgedit")
    texts = {str(1000 + number): f"please {number}" for number in range(9)}
    (bench.path / "rewrites.json").write_text(json.dumps(texts))
    options = (suite, "--imgedit-editor=miniatures:Words", JUDGE, ANY_VERSION)
    assert bench.run(*options, "--imgedit-save=main").ret == 0
    plain = {name: item["seeds"][0]["edit"]["blob"] for name, item in bench.items.items()}
    rewritten = "--imgedit-set=editor.rewrites=rewrites.json"
    assert bench.run(*options, rewritten).ret == 0
    item = bench.items["1000"]
    assert (item["instruction"], item["rewritten"]) == ("change 0", "please 0")
    assert item["seeds"][0]["edit"]["blob"] != plain["1000"]
    assert len(bench.results["editor"]["rewrites"]) == 64
    assert bench.timing["edits"] == 9
    refused = bench.run(*options, rewritten, "--imgedit-compare=main")
    assert refused.ret == 4
    refused.stderr.fnmatch_lines(["*edits by the suite's instructions there, by rewritten *"])
    (bench.path / "rewrites.json").write_text(json.dumps({"1000": "one"}))
    missing = bench.run(*options, rewritten)
    assert missing.ret == 4
    missing.stderr.fnmatch_lines(["*editor.rewrites: rewrites.json: '1001' is None, expected *"])


def test_refusals_are_a_status_of_their_own_in_every_table(bench, made):
    result = bench.run(
        made("imgedit"),
        "--imgedit-editor=identity",
        "--imgedit-judge=miniatures:Refuses",
        ANY_VERSION,
        "--imgedit-max-errors=0",
    )
    assert result.ret == 1
    assert bench.results["categories"]["add"]["refused"] == 1
    assert bench.results["overall"]["micro"]["refused"] == 1
    assert bench.results["overall"]["micro"]["errors"] == 0
    assert bench.items["1000"]["status"] == "refused"
    result.stdout.fnmatch_lines(["category * refused *"])
    result.stdout.fnmatch_lines(["*1 of 9 pairs without a score, 0 allowed*"])


SEEDS = {"物理": 50, "环境": 50, "社会": 70, "因果": 50, "指代": 50}


@pytest.mark.full
def test_seeds_statistics_are_those_of_a_plain_computation_over_270_replies(bench):
    picture(bench.path / "a.png", 1)
    image = base64.b64encode((bench.path / "a.png").read_bytes()).decode()
    pairs = [
        {"id": f"{slug}-{n}", "subset": name, "src_img_b64": image, "edit_instruction": f"改 {n}"}
        for (name, count), slug in zip(SEEDS.items(), ENGLISH, strict=True)
        for n in range(count)
    ]
    (bench.path / "seeds.json").write_text(json.dumps(pairs))
    result = bench.run(
        "--imgedit-suite=seeds:seeds.json",
        "--imgedit-editor=identity",
        "--imgedit-judge=miniatures:Numbers",
        "--imgedit-variant=compat",
        "--imgedit-set=suite.language=zh",
        "-v",
    )
    assert bench.results["judge"]["protocol"] == "seeds"
    replies = {pair["id"]: number_of(pair["id"]) for pair in pairs}
    scores = {name: float(reply) if reply else 5.0 for name, reply in replies.items()}
    for slug in ENGLISH:
        plain = [score for name, score in scores.items() if name.startswith(slug)]
        found = bench.results["categories"][slug]
        for name, function in PLAIN.items():
            assert found[name] == pytest.approx(function(plain)), (slug, name)
    overall = bench.results["overall"]["micro"]
    for name, function in PLAIN.items():
        assert overall[name] == pytest.approx(function(scores.values()))
    assert rows(bench)["score"] == pytest.approx(statistics.fmean(scores.values()))
    unread = sum(not reply for reply in replies.values())
    assert 10 < unread == bench.results["protocol"]["touched"]
    means = {slug: bench.results["categories"][slug]["mean"] for slug in ENGLISH}
    best, worst = max(means, key=means.get), min(means, key=means.get)
    result.stdout.fnmatch_lines([f"best: {best} {means[best]:.2f} * worst: {worst} *"])
    result.stdout.fnmatch_lines([f"compat: the authors' rule * {unread}"])
    result.stdout.fnmatch_lines(
        [f"*compat replaced or dropped unreadable replies of {unread} of 270*"]
    )


ENGLISH = ("physics", "environment", "social", "causal", "referential")
PLAIN = {
    "mean": statistics.fmean,
    "std": statistics.stdev,
    "median": statistics.median,
    "min": min,
    "max": max,
}


def test_re_edit_reads_the_columns_of_the_seeds(bench):
    import pyarrow as pa
    import pyarrow.parquet as pq

    picture(bench.path / "a.png", 1)
    image = {"bytes": (bench.path / "a.png").read_bytes(), "path": "a.png"}
    made = [
        {"id": name, "category": name, "instruction": "x", "image": image, "why": "w"}
        for name in ("physical", "environmental", "cultural", "causal", "referential")
    ]
    (bench.path / "re").mkdir()
    pq.write_table(pa.Table.from_pylist(made), bench.path / "re" / "test.parquet")
    options = ("--imgedit-editor=identity", "--imgedit-judge=miniatures:Numbers")
    result = bench.run("--imgedit-suite=re-edit:re", *options)
    assert set(bench.results["categories"]) == set(ENGLISH)
    assert bench.results["judge"]["protocol"] == "seeds"
    result.stdout.fnmatch_lines(["*fields that nothing reads: why (5 rows)*"])
    result.stdout.fnmatch_lines(["*re-edit:re: unverified: *"])


def test_answers_to_some_of_the_calls_are_kept_and_only_the_others_asked_again(bench, made):
    options = (made("gedit"), "--imgedit-editor=identity", JUDGE, ANY_VERSION)
    odd = (f"--imgedit-set=judge.odd={ODD}", "--imgedit-set=judge.at=[PQ]")
    bench.run(*options, *odd)
    assert set(bench.error_kinds.values()) == {"unreadable_reply"}
    assert bench.records("verdicts") == 11
    bench.run(*options, *odd, "--imgedit-set=judge.reasks=0")
    assert bench.records("verdicts") == 11


EXAMPLES = Path(__file__).parents[2] / "docs" / "protocols.md"


def example(language, holding):
    """The code block of the page on protocols that holds a text."""
    blocks = re.findall(rf"```{language}\n(.*?)```", EXAMPLES.read_text("utf-8"), re.DOTALL)
    return next(block for block in blocks if holding in block)


def test_the_page_s_protocol_in_toml_runs(bench):
    (bench.path / "mine.toml").write_text(example("toml", "[[calls]]"))
    (bench.path / "imgedit.toml").write_text(
        example("toml", "[protocols.mine]").replace(
            "[judge]", '[editor]\nspec = "identity"\n[judge]\nspec = "miniatures:Page"'
        )
    )
    bench.run("--imgedit-config=imgedit.toml", "--imgedit-limit=1")
    assert bench.results["overall"]["macro"]["mean"] == 6.0
    assert rows(bench) == {"score": 3.0}
    assert bench.items["physics-0000"]["aspects"] == {"change": 4.0, "quality": 3.0, "score": 3.0}
    assert [call["codec"] for call in bench.results["protocol"]["calls"]] == ["jpeg", "jpeg"]


def test_the_page_s_protocol_in_python_runs(bench):
    (bench.path / "my_module.py").write_text(example("python", "class YesNo"))
    own = "--imgedit-set=judge.protocol=my_module:YesNo"
    bench.run("--imgedit-judge=miniatures:Page", own, "--imgedit-limit=1")
    assert bench.results["protocol"]["name"] == "yes-no@strict"
    assert rows(bench) == {"done": 1.0}
    assert bench.results["overall"]["macro"]["mean"] == 10.0
