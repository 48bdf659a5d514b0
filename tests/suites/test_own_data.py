"""Suites of a user's own: as little as an image and an instruction a row."""

from __future__ import annotations

import base64
import io
import json
import zlib
from pathlib import Path

import pytest
from PIL import Image

from pytest_imgedit.cli.main import main

FAST = (
    "--imgedit-editor=fakes:Slow",
    "--imgedit-set=editor.delay=0.0",
    "--imgedit-judge=fakes:Constant",
)


def photographs(folder, *names):
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        Image.effect_noise((40, 32), 60).convert("RGB").save(folder / name)


def rows(bench, *values, name="pairs.jsonl"):
    (bench.path / name).write_text(
        "".join(json.dumps(value, ensure_ascii=False) + "\n" for value in values)
    )
    return f"--imgedit-suite={name}"


def test_an_image_and_an_instruction_are_enough(bench):
    photographs(bench.path / "photos", "img_000.jpg", "img_001.jpg")
    suite = rows(
        bench,
        *({"image": f"photos/img_00{n}.jpg", "instruction": "make it snow"} for n in range(2)),
    )
    bench.run(suite, *FAST).assert_outcomes(passed=2)
    assert list(bench.items) == ["img_000", "img_001"]
    assert list(bench.results["categories"]) == ["all"]


def test_csv_with_tags_and_a_seed(bench):
    photographs(bench.path, "a.png")
    (bench.path / "pairs.csv").write_text(
        'image,instruction,tags,seed,difficulty\na.png,"make it snow, please",weather; sky,7,hard\n'
    )
    bench.run("--imgedit-suite=pairs.csv", *FAST, "-m", "imgedit(tag='sky')").assert_outcomes(
        passed=1
    )
    (item,) = bench.results["items"]
    assert (item["instruction"], item["tags"], item["difficulty"]) == (
        "make it snow, please",
        ["weather", "sky"],
        "hard",
    )
    assert item["seeds"][0]["seed"] == 7


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            "image,image\na.png,b.png\n",
            "pairs.csv:1: columns *, expected a name for each, none twice",
        ),
        ("image,instruction\na.png\n", "pairs.csv:2: 1 values, expected 2, one a column"),
        ("image,instruction\na.png,x,y\n", "pairs.csv:2: 3 values, expected 2, one a column"),
        ('image,instruction\na.png,"x\n', "pairs.csv:2: not valid CSV: unexpected end of data"),
        ("image,instruction\n\na.png,\n", "pairs.csv:3: no instruction, expected text in *"),
        (
            "image,prompt\na.png,x\n",
            "*no instruction, *; if 'prompt' is that, set suite.fields.instruction='prompt'",
        ),
        (
            "pic,instruction\na.png,x\n",
            "pairs.csv:2: no image, *; found 'pic'; if 'pic' is that, set suite.fields.image='pic'",
        ),
        (
            "nr,Bild,instruction\n7,fotos/A.JPG,x\n",
            "*; found 'nr', 'Bild'; if 'Bild' is that, set suite.fields.image='Bild'",
        ),
        (
            "before,after,instruction\na,b,x\n",
            "*; found 'before', 'after'; suite.fields.image may name one of them",
        ),
        (
            "image,wunsch\na.png,x\n",
            "*no instruction, *; found 'wunsch'; suite.fields.instruction may name one of them",
        ),
        (
            "photo,instruction\na.png,x\n",
            "*no image, *; if 'photo' is that, set suite.fields.image='photo'",
        ),
        (
            "image,instruction,seed\na.png,x,1.5\n",
            "pairs.csv:2: 'seed' is '1.5', expected an integer *",
        ),
        (
            "image;prompt\na.png;x\n",
            "*no instruction, *; if 'prompt' is that, set suite.fields.instruction='prompt'",
        ),
        ("image,instruction\n", "suite pairs.csv: no pairs, expected at least one"),
    ],
)
def test_mistakes_in_csv_are_named_by_their_line(bench, text, line):
    (bench.path / "pairs.csv").write_text(text)
    bench.refuses(line, "--imgedit-suite=pairs.csv")


def test_a_table_in_an_unknown_encoding_is_refused_with_the_fix(bench):
    (bench.path / "pairs.csv").write_bytes(
        "image,instruction\na.png,mach es kühler\n".encode("cp1252")
    )
    bench.refuses(
        "pairs.csv:2: not UTF-8, expected UTF-8 text: save it as CSV UTF-8 in the spreadsheet",
        "--imgedit-suite=pairs.csv",
    )


def test_a_table_that_ends_amid_a_character_is_refused(bench):
    text = "image,instruction\na.png,mach es kühler\n".encode("utf-16")
    (bench.path / "pairs.csv").write_bytes(text[:-1])
    bench.refuses("pairs.csv:*: not UTF-8, expected UTF-8 text: *", "--imgedit-suite=pairs.csv")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("mark", [";", "\t"], ids=["semicolon", "tab"])
def test_columns_may_be_separated_as_other_spreadsheets_do(bench, mark, encoding):
    Image.effect_noise((64, 64), 90).save(bench.path / "a.png")
    text = f'image{mark}instruction{mark}tags\na.png{mark}make it snow, and cold{mark}"a;b"\n'
    (bench.path / "pairs.csv").write_text(text, encoding)
    assert bench.run("--imgedit-suite=pairs.csv", "--imgedit-judge=none").ret == 0
    (item,) = bench.results["items"]
    assert (item["instruction"], item["tags"]) == ("make it snow, and cold", ["a", "b"])


def test_tables_show_the_suites_own_names_of_categories(bench):
    Image.effect_noise((64, 64), 90).save(bench.path / "a.png")
    rows = [
        {"image": "a.png", "instruction": f"do {name}", "category": name}
        for name in ("物理", "physics", "social", "Style")
    ]
    (bench.path / "pairs.json").write_text(json.dumps(rows))
    result = bench.run("--imgedit-suite=pairs.json", "--imgedit-judge=fakes:Constant")
    result.stdout.fnmatch_lines(["physics 物理 * 2 *", "social * 1 *", "Style * 1 *"])
    assert bench.results["suite"]["labels"] == {"physics": "物理"}
    for name in ("report.md", "report.html"):
        assert "physics 物理" in (bench.runs[-1] / name).read_text()


def test_mistakes_in_json_of_one_line_are_named_by_their_row(bench):
    rows = [{"image": "a.png", "instruction": text} for text in ("x", "", "y", "")]
    (bench.path / "pairs.json").write_text(json.dumps(rows))
    bench.refuses(
        "pairs.json:1: row 2: no instruction, *; pairs.json:1: row 4: no *",
        "--imgedit-suite=pairs.json",
    )


def test_stored_edits_that_are_not_there_are_one_line(bench):
    for stage in ("score", "report"):
        result = bench.run(f"--imgedit-stage={stage}", "--imgedit-limit=1")
        assert result.ret == 4
        result.stderr.fnmatch_lines(
            [f"ERROR: --imgedit-stage={stage}: */.imgedit has no edit of these pairs by *"]
        )


def test_images_below_another_root(bench):
    photographs(bench.path / "elsewhere" / "deep", "a.png")
    (bench.path / "data").mkdir()
    suite = rows(bench, {"image": "deep/a.png", "instruction": "x"}, name="data/pairs.jsonl")
    bench.run(suite, *FAST, "--imgedit-set=suite.root=elsewhere").assert_outcomes(passed=1)
    bench.run(suite, *FAST, "--imgedit-set=suite.root=nowhere").stderr.fnmatch_lines(
        ["ERROR: suite.root: nowhere: no such folder"]
    )
    rows(bench, {"image": "../pytest.ini", "instruction": "x"}, name="data/pairs.jsonl")
    bench.run(suite, *FAST, "--imgedit-set=suite.root=elsewhere").stderr.fnmatch_lines(
        ["ERROR: *leads out of *"]
    )


def test_a_built_in_suite_on_the_command_line_leaves_out_what_the_file_of_the_config_needs(bench):
    (bench.path / "imgedit.toml").write_text(
        '[suite]\nspec = "pairs.csv"\nroot = "photos"\n[suite.fields]\ninstruction = "prompt"\n'
    )
    bench.run("--imgedit-suite=scenes:n=1", *FAST).assert_outcomes(passed=5)


def test_fields_that_nothing_reads_are_named_once(bench):
    photographs(bench.path, "a.png", "b.png")
    suite = rows(
        bench,
        {"image": "a.png", "instruction": "x", "photo_id": "b.png", "note": "y"},
        {"image": "b.png", "instruction": "x", "photo_id": "a.png"},
    )
    result = bench.run(suite, *FAST)
    result.assert_outcomes(passed=2)
    line = (
        "pairs.jsonl: fields that nothing reads: photo_id (2 rows), note (1 row); "
        "[suite.fields] maps names"
    )
    assert result.outlines.count(f"imgedit: {line}") == 1
    assert bench.results["suite"]["remarks"] == [line]


def test_names_in_any_script_select_although_ids_are_ascii(bench):
    photographs(bench.path / "图", "00000_物理_medium.png", "00001_社会_hard.png")
    suite = rows(
        bench,
        {"image": "图/00000_物理_medium.png", "instruction": "让它下落", "category": "物理"},
        {"image": "图/00001_社会_hard.png", "instruction": "x", "category": "社会"},
    )
    for selection in (("-k", "00000_物理_medium"), ("-m", "imgedit(category='物理')")):
        bench.run(suite, *FAST, *selection).assert_outcomes(passed=1, deselected=1)
        assert list(bench.items) == ["00000-medium"]


def test_finished_images_under_the_suites_own_names(bench):
    photographs(bench.path, "00000_物理_medium.png", "00001_社会_hard.png")
    photographs(bench.path / "outputs" / "images" / "物理", "00000_物理_medium.png")
    photographs(bench.path / "outputs" / "images" / "社会", "00001_社会_hard.png")
    suite = rows(
        bench,
        {"image": "00000_物理_medium.png", "instruction": "x", "category": "物理"},
        {"image": "00001_社会_hard.png", "instruction": "x", "category": "社会"},
    )
    bench.run(suite, *FAST[2:], "--imgedit-editor=folder:outputs/images").assert_outcomes(passed=2)


def test_what_all_pairs_lack_is_one_line_before_anything_is_edited(bench):
    photographs(bench.path, "a.png", "b.png")
    photographs(bench.path / "out", "img_1.jpg", "img_2.jpg")
    suite = rows(bench, *({"image": f"{name}.png", "instruction": "x"} for name in "ab"))
    for options, line in (
        (
            ("--imgedit-editor=folder:out", *FAST[2:]),
            "2 of 2 pairs have no finished image for folder:out (a, b); out holds 2 pictures, 0 of "
            "them match ids, 2 match none: img_1.jpg, img_2.jpg; expected {category}/{id}.png or "
            "{id}.png",
        ),
        (
            ("--imgedit-judge=reference",),
            "2 of 2 pairs have no reference image, which judge 'reference' needs (a, b); *",
        ),
        (
            ("--imgedit-editor=oracle", *FAST[2:]),
            "2 of 2 pairs have no reference image, which editor 'oracle' needs *",
        ),
    ):
        result = bench.run(suite, *options)
        assert result.ret == 4
        result.stderr.fnmatch_lines([f"ERROR: {line}"])
        assert bench.stored_edits() == 0


def encoded(kind, size=(40, 32), **options):
    file = io.BytesIO()
    Image.effect_noise(size, 60).convert("RGB").save(file, kind, **options)
    return file.getvalue()


def large_png():
    """A PNG whose header alone counts more pixels than are allowed."""
    data = bytearray(encoded("PNG"))
    data[16:24] = (30000).to_bytes(4, "big") * 2
    data[29:33] = zlib.crc32(data[12:29]).to_bytes(4, "big")
    return bytes(data)


#: Bytes of an image that cannot be used, and the reason.
UNREADABLE = {
    "garbage": (b"no image at all" * 9, "not an image in one of the formats PNG, JPEG, WEBP"),
    "empty": (b"", "empty file*"),
    "jpeg-cut": (encoded("JPEG")[:600], "broken image: cut short*"),
    "png-cut": (encoded("PNG")[:600], "broken image: cut short*"),
    "webp-cut": (encoded("WEBP")[:600], "broken image: cut short*"),
    "gif": (encoded("GIF"), "GIF image, expected one of PNG, JPEG, WEBP: save it as PNG"),
    "tiff": (encoded("TIFF"), "TIFF image, expected one of PNG, JPEG, WEBP: save it as PNG"),
    "heic": (b"\0\0\0\x18ftypheic" + b"\0" * 99, "HEIC or AVIF image, expected one of PNG, *"),
    "tiny": (encoded("PNG", (40, 4)), "image of 40x4 pixels, expected sides of at least 8"),
    "large": (large_png(), "*decompression bomb*"),
}


@pytest.mark.parametrize("what", [*UNREADABLE, "folder"])
@pytest.mark.parametrize("column", ["image", "reference"])
@pytest.mark.everyday_for(
    "image-garbage",
    "image-jpeg-cut",
    "image-webp-cut",
    "image-tiff",
    "image-tiny",
    "image-folder",
    "reference-jpeg-cut",
    "reference-webp-cut",
    "reference-tiff",
    "reference-tiny",
    "reference-folder",
)
def test_an_image_that_cannot_be_read_ends_the_run_before_it_begins(bench, column, what):
    photographs(bench.path, "a.png")
    data, reason = UNREADABLE.get(what, (None, "Is a directory*"))
    bad = bench.path / "bad.jpg"
    bad.mkdir() if data is None else bad.write_bytes(data)
    values = {"image": "a.png", "reference": "a.png", column: "bad.jpg"}
    (bench.path / "s.csv").write_text(
        "id,instruction,image,reference\n"
        "good,x,a.png,a.png\n"
        f"bad,x,{values['image']},{values['reference']}\n"
    )
    result = bench.run("--imgedit-suite=s.csv", *FAST)
    assert (result.ret, bench.stored_edits()) == (4, 0)
    result.stderr.fnmatch_lines(
        [
            "ERROR: 1 of 2 pairs have a source or reference that cannot be read (bad in s.csv:3); "
            f"*bad.jpg: {reason}; fix them, or *"
        ]
    )


@pytest.mark.parametrize("form", ["json", "jsonl", "csv", "toml", "parquet"])
def test_an_image_in_a_row_that_cannot_be_read_is_named_by_its_row(bench, form):
    text = base64.b64encode(UNREADABLE["gif"][0]).decode()
    row, name = {"instruction": "x", "image_b64": text}, f"s.{form}"
    place = name if form == "parquet" else f"{name}:1"
    if form == "parquet":
        pytest.importorskip("pyarrow.parquet")
        from pyarrow import Table, parquet

        image = {"bytes": UNREADABLE["gif"][0], "path": "x.png"}
        rows_ = [{"instruction": "x", "image": image}]
        parquet.write_table(Table.from_pylist(rows_), bench.path / name)
    elif form == "csv":
        (bench.path / name).write_text(f"instruction,image_b64\nx,{text}\n")
        place = f"{name}:2"
    elif form == "toml":
        (bench.path / name).write_text(f'[[pairs]]\ninstruction = "x"\nimage_b64 = "{text}"\n')
    else:
        (bench.path / name).write_text(json.dumps([row] if form == "json" else row))
    result = bench.run(f"--imgedit-suite={name}", *FAST)
    assert (result.ret, bench.stored_edits()) == (4, 0)
    result.stderr.fnmatch_lines([f"ERROR: 1 of 1 pairs *(* in {place}*); GIF image, *"])


@pytest.mark.parametrize("column", ["image", "reference"])
@pytest.mark.parametrize("form", ["file", "row"])
def test_damage_that_only_decoding_finds_names_file_and_row(bench, column, form):
    """The header is whole, and so is the end."""
    photographs(bench.path, "a.png")
    data = bytearray(encoded("PNG"))
    data[300:600] = bytes(300)
    (bench.path / "bad.png").write_bytes(data)
    row = {"id": "bad", "instruction": "x", "image": "a.png", "reference": "a.png"}
    field, value = (column, "bad.png")
    if form == "row":
        del row[column]
        field = {"image": "image_b64", "reference": "reference_b64"}[column]
        value = base64.b64encode(data).decode()
    good = {"id": "good", "instruction": "x", "image": "a.png", "reference": "a.png"}
    suite = rows(bench, good, {**row, field: value})
    shown = ("--imgedit-editor=oracle", FAST[2]) if column == "reference" else FAST
    assert bench.run(suite, *shown).ret == 1
    name = {"image": "source"}.get(column, column)
    message = bench.items["bad"]["error"]["message"]
    assert message.startswith(f"pairs.jsonl:2: {name}: ")
    assert ("bad.png: broken image: " in message) == (form == "file")
    assert "blobs" not in message


def test_what_some_pairs_lack_is_said_before_the_others_are_edited(bench):
    photographs(bench.path, "a.png", "b.png")
    suite = rows(bench, *({"image": f"{name}.png", "instruction": "x"} for name in "abc"))
    refused = bench.run(suite, *FAST)
    assert (refused.ret, bench.stored_edits()) == (4, 0)
    refused.stderr.fnmatch_lines(
        [
            "ERROR: 1 of 3 pairs have a source or reference that cannot be read (c in *:3); "
            "*c.png: No such file*; "
            "fix them, or raise --imgedit-max-errors"
        ]
    )
    result = bench.run(suite, *FAST, "--imgedit-max-errors=1")
    result.assert_outcomes(passed=2, xfailed=1)
    lines = [line for line in result.outlines if line.startswith("imgedit: ")]
    (place,) = (
        n
        for n, line in enumerate(lines)
        if "1 of 3 pairs have a source or reference that cannot be read" in line
    )
    assert place < next(n for n, line in enumerate(lines) if line.startswith("imgedit: edit: "))


def test_equal_reasons_are_folded_and_counted_in_full(bench):
    result = bench.run_with_workers(
        "--imgedit-editor=fakes:Dies", "--imgedit-limit=2", "-k", "physics or social"
    )
    result.assert_outcomes(failed=4)
    reasons = [
        line for line in result.outlines if "edit error" in line and not line.startswith("FAILED ")
    ]
    assert len([line for line in reasons if " more as " in line]) == 1
    assert "Traceback" not in result.stdout.str()
    assert len([line for line in result.outlines if line.startswith("FAILED ")]) == 4


def test_scores_without_any_spread_are_named(bench):
    result = bench.run("--imgedit-judge=fakes:Constant", "--imgedit-limit=1")
    result.stdout.fnmatch_lines(["no spread: all 5 scores are 5.00"])


def test_a_comparison_without_gates_is_in_the_last_line(bench):
    options = ("--imgedit-limit=2", "--imgedit-set=judge.controls=false")
    bench.run(*options, "--imgedit-save=main", "--imgedit-editor=oracle")
    result = bench.run(
        *options, "--imgedit-compare=main", "--imgedit-editor=oracle", "--imgedit-seeds=1"
    )
    result.stdout.fnmatch_lines(["imgedit: PASS: overall 10.00, was 10.00 in main: +0.00 (same)*"])


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (["--imgedit-suite=photoz.jsonl", "--imgedit-judge=scenes"], "photoz.jsonl: no such file, " "expected *"),
        (["--imgedit-suit=scenes"], "--imgedit-suit: no such option; did you mean " "'--imgedit-suite'?"),
        (["--imgedit-set=judge.reask=3", "--imgedit-judge=none"], "judge.reask: no such argument is taken by none; did you mean 'reasks'?"),
        (["--imgedit-set=judge.spce=none"], "judge.spce: no such argument *; did you mean 'spec'?"),
        (["--imgedit-set=editor.batchsize=1"], "editor.batchsize: *; did you mean 'batch_size'?"),
        (["--imgedit-set=judges.b.spce=none"], "judges.b.spce: *; did you mean 'spec'?"),
        (["--imgedit-set=metrics.m.spce=psnr"], "unknown metric 'm', *; did you mean 'spec' by 'spce'?"),
        (["--imgedit-set=gates.fail_undr=1"], "gates.fail_undr: *; did you mean 'fail_under'?"),
        (["--imgedit-set=jugde.spec=none"], "*jugde*; did you mean 'judge'?"),
        (["--imgedit-judge=none", "--imgedit-save=main"], "judge 'none' scores nothing, as " "--imgedit-save needs: *"),
        (["--imgedit-suite=scnes"], "unknown suite 'scnes', *; did you mean 'scenes'?"),
        (["--imgedit-suite=photos"], "unknown suite 'photos', *; photos is a folder: imgedit init " "photos *"),
        (["--imgedit-editor=identiy"], "unknown editor 'identiy', *; did you mean 'identity'?"),
        (["--imgedit-editor=diffuser:foo"], "editor 'diffuser:foo': no module *; did you mean " "'diffusers'?"),
        (["--imgedit-editor=models/step-4"], "unknown editor *; did you mean " "'diffusers:models/step-4'?"),
        (["--imgedit-editor=gpt-image-1"], "unknown editor *; did you mean " "'openai-images:URL#gpt-image-1'?"),
        (["--imgedit-judge=gpt-4o"], "unknown judge *; did you mean 'openai:URL#gpt-4o'?"),
        (["--imgedit-judge=Qwen/Qwen3-VL-8B"], "unknown judge *; did you mean " "'qwen-vl:Qwen/Qwen3-VL-8B'?"),
        (["--imgedit-editor=fakes:Slowe"], "editor 'fakes:Slowe': *fakes.py defines no 'Slowe'; " "did you mean 'Slow'?"),
        (["--imgedit-editor=fakes:Slow", "--imgedit-set=editor.delai=1"], "*by fakes:Slow; did " "you mean 'delay'?"),
        (["--imgedit-set=suite.limt=1"], "suite.limt: unknown key, *; did you mean 'limit'?"),
        (["--imgedit-set=suit.limit=1"], "[[]suit[]]: unknown section, *; did you mean 'suite'?"),
        (["--imgedit-fail-under=phisics:1"], "--imgedit-fail-under: unknown field 'phisics', *; did you mean " "'physics'?"),
        (["--imgedit-stage=score", "--imgedit-judge=none"], "--imgedit-stage=score: judge 'none' " "does not score edits*"),
        (["--imgedit-judge=none", "--imgedit-fail-under=overall:1"], "judge 'none' scores " "nothing, as gates*"),
    ],
)  # fmt: skip
def test_the_right_part_is_blamed_and_the_near_word_named(bench, options, line):
    photographs(bench.path / "photos", "a.png")
    bench.refuses(line, *options)


def test_two_configs_are_refused(bench):
    (bench.path / "pyproject.toml").write_text("[tool.imgedit.suite]\nlimit = 1\n")
    bench.refuses(
        "imgedit_config = imgedit.toml and [[]tool.imgedit] in pyproject.toml: expected one "
        "config, or *"
    )
    bench.run("--imgedit-config=imgedit.toml", "--imgedit-limit=1").assert_outcomes(passed=5)


def test_parameters_of_another_kind_of_model_do_not_count(bench):
    (bench.path / "imgedit.toml").write_text(
        "[editor]\nspec = 'fakes:Slow'\ndelay = 0.0\nseeds = 2\n[judge]\nspec = "
        "'fakes:Constant'\nscore = 4.0\n"
    )
    bench.run("--imgedit-limit=1", "-k", "social").assert_outcomes(passed=1)
    assert bench.results["editor"]["params"] == {"delay": 0.0}
    bench.run("--imgedit-limit=1", "-k", "social", "--imgedit-editor=identity").assert_outcomes(
        passed=1
    )
    document = bench.results
    assert (document["editor"]["params"], len(document["items"][0]["seeds"])) == ({}, 2)
    assert document["items"][0]["score"] == 4.0
    line = "*imgedit.toml:3: editor.delay: no such argument is taken by identity"
    result = bench.run(
        "--imgedit-set=editor.spec='identity'"
    )  # the config's own editor is changed: its keys count
    result.stderr.fnmatch_lines([f"ERROR: {line}"])


def test_the_first_baseline_is_saved_although_the_config_compares_with_it(bench):
    with (bench.path / "imgedit.toml").open("a") as file:
        file.write(
            "controls = false\n[gates]\ncompare = 'main'\nmax_drop = {overall = 0}\nmin_coverage "
            "= 0.5\n"
        )
    bench.refuses(
        "main: no such baseline or run, *has none (--imgedit-save makes one), *",
        "--imgedit-editor=oracle",
    )
    bench.run("--imgedit-save=main", "--imgedit-editor=oracle").assert_outcomes(passed=50)
    again = bench.run("--imgedit-save=main", "--imgedit-editor=oracle")
    again.stdout.fnmatch_lines(["imgedit: PASS: overall 10.00, was 10.00 in main: +0.00*"])


def test_a_setting_is_blamed_where_it_is_set(bench):
    config = "[workers]\ngpus = '0-5'\n[editor]\nspec = 'identty'\n[judge]\nspec = 'reference'\n"
    (bench.path / "imgedit.toml").write_text(config)
    bench.refuses("*imgedit.toml:4: unknown editor 'identty', *")
    bench.refuses("*imgedit.toml:2: workers.gpus=0-5: no GPU 0, *", "--imgedit-editor=identity")
    bench.refuses(
        "--imgedit-gpus=0-6: no GPU 0, *", "--imgedit-editor=identity", "--imgedit-gpus=0-6"
    )
    (bench.path / "imgedit.toml").write_text("[suite]\nspec = 'x.json'\n")
    bench.refuses("*imgedit.toml:2: x.json: no such file, *")
    bench.refuses("y.json: no such file, *", "--imgedit-suite=y.json")


def test_baselines_live_where_the_config_says(bench, capsys):
    with (bench.path / "imgedit.toml").open("a") as file:
        file.write("[gates]\nbaselines = 'kept/here'\n")
    options = ("--imgedit-limit=1", "--imgedit-set=judge.controls=false")
    bench.run(*options, "--imgedit-save=main", "--imgedit-editor=oracle")
    assert (bench.path / "kept" / "here" / "main.json").is_file()
    result = bench.run(*options, "--imgedit-compare=main")
    result.stdout.fnmatch_lines(["against baseline main: *"])
    assert main(["compare", "main", "latest"]) == 0
    assert "editor identity" in capsys.readouterr().out


def test_commands_find_baselines_where_the_folder_benchmarks_is_pytests_root(bench, monkeypatch):
    folder = bench.path / "benchmarks"
    folder.mkdir()
    for name in ("imgedit.toml", "pytest.ini", "test_image_edit.py"):
        (bench.path / name).rename(folder / name)
    options = ("--imgedit-limit=1", "--imgedit-set=judge.controls=false", "--imgedit-save=main")
    bench.run("benchmarks", *options).assert_outcomes(passed=5)
    assert (folder / "baselines" / "main.json").is_file()
    monkeypatch.chdir(folder)
    assert main(["compare", "main", "latest"]) == 0


def test_a_mark_takes_any_name_of_a_category(bench):
    (bench.path / "test_marked.py").write_text(
        "import pytest\n"
        "@pytest.mark.imgedit(category='物理')\n"
        "def test_category(edit_pair): assert edit_pair.category == 'physics'\n"
    )
    bench.run("test_marked.py").assert_outcomes(passed=10)


def test_the_config_of_the_chinese_page_takes_the_pairs_of_its_categories(bench):
    page = (Path(__file__).parents[2] / "docs" / "zh.md").read_text()
    (bench.path / "imgedit.toml").write_text(page.partition("```toml\n")[2].partition("```")[0])
    Image.new("RGB", (64, 64)).save(bench.path / "a.png")
    pairs = [
        {"image": "a.png", "instruction": category, "category": category}
        for category in ("物理", "环境", "社会", "因果", "指代", "其他")
    ]
    (bench.path / "pairs.json").write_text(json.dumps(pairs))
    collected = bench.run("--imgedit-set=gates.max_drop={}", "--collect-only", "-q")
    assert collected.ret == 0
    collected.stdout.fnmatch_lines(["5 tests collected*"])
