"""What is wrong with a class of the user is said before a run starts, from its source alone."""

from __future__ import annotations

import re

import pytest

from pytest_imgedit.core import errors
from pytest_imgedit.core.targets import Target
from pytest_imgedit.kinds.base import Site
from pytest_imgedit.kinds.registry import make_model

CONSTRUCTOR = "    def __init__(self, *, device): pass\n"
EDIT = "    def edit(self, request): return request.source\n"
ANSWER = "    def answer(self, questions): return []\n"


@pytest.fixture
def check(tmp_path, monkeypatch):
    """Check a class `Mine` of this source, which is never run; return what is wrong with it."""
    monkeypatch.syspath_prepend(tmp_path)

    def call(text, role="editor", params=None, batch_size=1):
        (tmp_path / "own_class.py").write_text(f"raise SystemExit('it is run')\n{text}")
        model = make_model(role, "own_class:Mine", params or {})
        object.__setattr__(model, "batch_size", batch_size)
        try:
            model.check(Site())
        except errors.SettingError as error:
            return f"{error.key}: {error}".replace(f"{tmp_path}/", "")
        return None

    return call


@pytest.mark.parametrize(
    ("text", "says"),
    [
        pytest.param(
            f"class Mine:\n    def __init__(self, strength=1): pass\n{EDIT}",
            "own_class.py:3: def __init__(self, strength=1), expected def __init__(self, *, device)",
            id="without-device",
        ),
        pytest.param(
            f"class Mine:\n    def __init__(self): pass\n{EDIT}",
            "own_class.py:3: def __init__(self), expected def __init__(self, *, device)",
            id="without-any",
        ),
        pytest.param(
            f"class Mine:\n{EDIT}",
            "own_class.py:2: no __init__, expected def __init__(self, *, device)",
            id="no-init",
        ),
        pytest.param(
            f"class Base:\n    def __init__(self, x=1): pass\nclass Mine(Base):\n{EDIT}",
            "own_class.py:3: def __init__(self, x=1), expected def __init__(self, *, device)",
            id="that-of-a-base",
        ),
        pytest.param(
            f"import torch\nclass Mine(torch.nn.Module):\n    def __init__(self): pass\n{EDIT}",
            "own_class.py:4: def __init__(self), expected def __init__(self, *, device)",
            id="base-of-another-module",
        ),
        pytest.param(
            f"class Mine:\n{CONSTRUCTOR}",
            "own_class.py:2: no method edit, expected def edit(self, request)",
            id="no-edit",
        ),
        pytest.param(
            f"class Mine:\n{CONSTRUCTOR}    def edti(self, request): pass\n",
            "own_class.py:2: no method edit, expected def edit(self, request)",
            id="misspelt",
        ),
        pytest.param(
            f"class Mine:\n{CONSTRUCTOR}    def edit(self, image, instruction): pass\n",
            "own_class.py:4: def edit(self, image, instruction), expected def edit(self, request)",
            id="two-arguments",
        ),
        pytest.param(
            f"class Mine:\n{CONSTRUCTOR}    def edit(request): pass\n",
            "own_class.py:4: def edit(request), expected def edit(self, request)",
            id="no-self",
        ),
        pytest.param(
            f"class Mine:\n{CONSTRUCTOR}    def edit(self, request, *, seed): pass\n",
            "own_class.py:4: def edit(self, request, *, seed), expected def edit(self, request)",
            id="keyword",
        ),
        pytest.param(
            f"class Mine:\n{CONSTRUCTOR}    async def edit(self, request): pass\n",
            "own_class.py:4: async def edit(self, request), expected def edit(self, request)",
            id="async",
        ),
    ],
)
def test_an_editor_that_no_worker_could_call(check, text, says):
    assert check(text) == f"spec: editor 'own_class:Mine': {says}"


@pytest.mark.parametrize("role", ["judge", "metric"])
@pytest.mark.parametrize(
    ("text", "says"),
    [
        (ANSWER, "2: no __init__, expected def __init__(self, *, device)"),
        (CONSTRUCTOR, "2: no method answer, expected def answer(self, questions)"),
        (
            f"{CONSTRUCTOR}    def answer(self, source, edited): pass\n",
            "4: def answer(self, source, edited), expected def answer(self, questions)",
        ),
    ],
)
def test_a_judge_or_metric_that_no_worker_could_call(check, role, text, says):
    said = check(f"class Mine:\n{text}", role)
    assert said == f"spec: {role} 'own_class:Mine': own_class.py:{says}"


@pytest.mark.parametrize(
    ("arguments", "params", "says"),
    [
        (
            "strength=1.0",
            {"strenght": 2.0},
            "strenght: no such argument is taken; did you mean 'strength'?",
        ),
        ("strength: float = 1.0", {"strength": "much"}, "strength: found 'much', expected float"),
        ("strength", {}, "strength: no value, and no default in own_class.py:3"),
        ("strength=1.0", {"device": "cuda"}, "device: no such argument is taken"),
        ("**options", {"device": "cuda"}, "device: no such argument is taken"),
    ],
)
@pytest.mark.parametrize("is_inherited", [False, True])
def test_parameters_that_a_class_does_not_take_or_lacks(
    check, arguments, params, says, is_inherited
):
    constructor = f"    def __init__(self, *, device, {arguments}): pass\n"
    text = f"class Mine:\n{constructor}{EDIT}"
    if is_inherited:
        text = f"class Base:\n{constructor}class Mine(Base):\n{EDIT}"
    assert check(text, params=params) == says


def test_a_batch_size_needs_a_method(check):
    text = f"class Mine:\n{CONSTRUCTOR}{EDIT}"
    assert check(text, batch_size=4) == (
        "spec: editor 'own_class:Mine': own_class.py:2: no method edit_batch, "
        "expected def edit_batch(self, requests)"
    )
    assert check(f"{text}    def edit_batch(self, requests): pass\n", batch_size=4) is None


@pytest.mark.parametrize(
    "text",
    [
        f"class Mine:\n    def __init__(self, device): pass\n{EDIT}",
        f"class Mine:\n    def __init__(self, **options): pass\n{EDIT}",
        f"class Mine:\n{CONSTRUCTOR}    def edit(self, request, seed=0, *more, **others): pass\n",
        f"class Mine:\n{CONSTRUCTOR}    def edit(self, *requests): pass\n",
        f"import other\nclass Mine(other.Base):\n{EDIT}",
        f"from other import Base\nclass Mine(Base):\n{CONSTRUCTOR}",
        f"class Mine(metaclass=Any):\n{EDIT}",
        f"@dataclass\nclass Mine:\n    device: str\n{EDIT}",
        f"class Mine:\n    __init__ = of_another\n{EDIT}",
        "class Mine:\n    def __init__(self, *, device): self.edit = load(device)\n",
        f"class Mine:\n{CONSTRUCTOR}Mine.edit = lambda self, request: request.source\n",
        f"class Mine:\n{CONSTRUCTOR}    def __getattr__(self, name): pass\n",
        f"class Mine:\n{CONSTRUCTOR}    @curried\n    def edit(self, image, seed): pass\n",
        f"class Mine:\n{CONSTRUCTOR}    def edit(self): pass\n    edit = better(edit)\n",
        f"class Mine:\n    def __new__(cls, device): pass\n{EDIT}",
        "def make(*, device): pass\nMine = make\n",
        "class Mine:\n    pass\nMine = better(Mine)\n",
        f"class Mine:\n{CONSTRUCTOR}    if gpu:\n        def edit(self, image): pass\n    else:\n    {EDIT}",
        "from other import Mine\n",
    ],
)
def test_a_class_that_source_does_not_tell_about_is_left_to_its_worker(check, text):
    assert check(text) is None


def test_a_worker_says_what_source_did_not(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "made_class.py").write_text("Mine = type('Mine', (), {})\n")
    with pytest.raises(errors.SetupError, match=re.escape("def __init__(self, *, device)")):
        Target.parse("made_class:Mine").build("cpu", {})


# How many source images it takes


@pytest.fixture
def most_of(tmp_path, monkeypatch):
    """Return what a class `Mine` of a module says of its sources, beside other modules."""
    monkeypatch.syspath_prepend(tmp_path)

    def call(name, text, **others):
        for module, source in {name: text, **others}.items():
            (tmp_path / f"{module}.py").write_text(source)
        return make_model("editor", f"{name}:Mine", {}).max_sources

    return call


@pytest.mark.parametrize(
    ("line", "most"),
    [
        ("pass", 1),
        ("max_sources = 1", 1),
        ("max_sources = 3", 3),
        ("max_sources: int = 3", 3),
        ("least = max_sources = 2", 2),
        ("max_sources = None", None),
        ("max_sources: int | None = None", None),
        ("max_sources = 2; max_sources = 3", 3),
        ("def set(self, other): other.max_sources = 3", 1),
        ("def most(self): self.max_sources: int", 1),
    ],
)
def test_a_class_says_how_many_sources_it_takes(most_of, line, most):
    assert most_of("says_how_many", f"class Mine:\n    {line}\n{CONSTRUCTOR}{EDIT}") == most


def test_a_class_takes_as_many_sources_as_its_base_in_another_file(most_of):
    base = f"class Base:\n    max_sources = 3\n{CONSTRUCTOR}{EDIT}"
    text = "from base_of_several import Base\nclass Mine(Base):\n    {}\n"
    assert most_of("inherits", text.format("pass"), base_of_several=base) == 3
    assert most_of("overrides", text.format("max_sources = None"), base_of_several=base) is None
    assert most_of("annotates", text.format("max_sources: int"), base_of_several=base) == 3


@pytest.mark.parametrize("value", ["0", "-1", "True", "2.0", "'3'", "...", "[2]"], ids=repr)
def test_a_wrong_number_of_sources_is_refused(check, value):
    text = f"class Mine:\n    max_sources = {value}\n{CONSTRUCTOR}{EDIT}"
    assert check(text) == (
        f"spec: editor 'own_class:Mine': own_class.py:3: max_sources = {value}, expected a count "
        "of at least 1, or None"
    )


@pytest.mark.parametrize("base", ["object", "Several"])
@pytest.mark.parametrize(
    ("lines", "line", "found"),
    [
        ("max_sources = MOST", 6, None),
        ("max_sources = 1 + 2", 6, None),
        ("max_sources = {[]}", 6, None),
        ("max_sources: int = MOST", 6, "max_sources = MOST"),
        ("max_sources += 1", 6, "max_sources in 'max_sources += 1'"),
        ("least, max_sources = 1, 3", 6, "max_sources in 'least, max_sources = 1, 3'"),
        ("if MOST:\n        max_sources = 3", 6, "max_sources in 'if MOST:'"),
        ("@property\n    def max_sources(self): return 1", 7, "def max_sources(self): return 1"),
        ("def max_sources(self): return 1", 6, None),
        ("def load(self):\n        self.max_sources = 1", 7, "self.max_sources = 1"),
        ("def load(this):\n        this.max_sources = 1", 7, "this.max_sources = 1"),
        (
            "max_sources = 3\n    def load(self):\n        self.max_sources = 1",
            8,
            "self.max_sources = 1",
        ),
        (
            "@classmethod\n    def load(cls):\n        cls.max_sources += 1",
            8,
            "cls.max_sources += 1",
        ),
    ],
)
def test_a_number_of_sources_that_only_a_run_would_tell_is_refused(check, base, lines, line, found):
    text = f"MOST = 3\nclass Several:\n    max_sources = 3\nclass Mine({base}):\n    {lines}\n"
    assert check(f"{text}{CONSTRUCTOR}{EDIT}") == (
        f"spec: editor 'own_class:Mine': own_class.py:{line}: {found or lines}, expected a number "
        "written out in the class body, such as max_sources = 3, or None: the source is read and "
        "not run"
    )


def test_a_number_of_sources_that_a_base_or_the_module_sets_elsewhere_is_refused(check):
    base = "class Base:\n    def load(self): self.max_sources = 1\n"
    mine = f"class Mine(Base):\n    max_sources = 3\n{CONSTRUCTOR}{EDIT}"
    assert "own_class.py:3: def load(self): self.max_sources = 1, expected a number" in check(
        base + mine
    )
    assert "own_class.py:6: Mine.max_sources = 3, expected a number" in check(
        f"class Mine:\n    max_sources = 1\n{CONSTRUCTOR}{EDIT}Mine.max_sources = 3\n"
    )


def test_a_number_of_sources_that_cannot_be_read_ends_a_run_before_it_begins(bench):
    text = f"class Mine:\n    max_sources = 0\n{CONSTRUCTOR}{EDIT}"
    (bench.path / "takes_none.py").write_text(text)
    bench.refuses(
        "*takes_none.py:2: max_sources = 0, expected a count of at least 1, or None",
        "--imgedit-editor=takes_none:Mine",
    )
