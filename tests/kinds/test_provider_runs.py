"""Whole runs against servers that answer and refuse as those of providers do: the commands of the
pages word for word, and what an exhausted quota costs.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from hosted_providers import Azure, DashScope, OpenAI
from provider_servers import VLLM, SGLang, provided

from pytest_imgedit.core.breaker import MOST_ALIKE

ROOT = Path(__file__).parents[2]
#: Forty pairs, which are edited at once.
SUITE = ("--imgedit-suite=scenes:n=8", "--imgedit-editor=shuffled", "--imgedit-gpus=none")
OTHERS = ("-kphysics", "--imgedit-limit=2")


@pytest.fixture(autouse=True)
def _key(monkeypatch):
    pytest.importorskip("openai")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-right")


def commands(page, *needed):
    """The commands of a page that begin with pytest and have all of some words, on one line."""
    text = (ROOT / page).read_text("utf-8").replace("\\\n", " ")
    found = re.findall(r"^ *(?:[A-Z_]+=\S+ +)?(pytest .*?)(?: +#.*)?$", text, re.MULTILINE)
    return [command for command in found if all(word in command for word in needed)]


def options_of(command, url, host):
    """The options of a command, with another address for `url`, and with pairs of these tests."""
    words = shlex.split(command.replace(url, host), comments=False)[1:]
    kept = [word for word in words if word.startswith("--") and "gpus" not in word]
    kept = [word for word in kept if not word.startswith(("--imgedit-suite", "--imgedit-editor"))]
    return [*SUITE, *OTHERS, *kept]


#: The address in a command, by the page, and the server of the command's model behind it.
PAGES = [
    ("docs/judges.md", "http://localhost:8000/v1", VLLM),
    ("docs/judges.md", "http://localhost:8000/v1", lambda model: VLLM(model, nested=False)),
    ("docs/judges.md", "http://localhost:8000/v1", SGLang),
    ("docs/vllm.md", "http://localhost:8000/v1", VLLM),
    ("docs/judges.md", "https://api.openai.com/v1", lambda model: OpenAI(model, reasoning=True)),
    ("docs/endpoints.md", "https://api.example.org/v1", DashScope),
]


@pytest.mark.parametrize(("page", "url", "provider"), PAGES)
def test_commands_of_the_pages_work_word_for_word(bench, page, url, provider):
    found = commands(page, url)
    assert found
    for command in found:
        (model,) = re.findall(rf"{re.escape(url)}#([^\s\"']+)", command)
        server = provider(model)
        with provided(server) as host:
            base = host + server.base
            options = options_of(command, url, base)
            if "#gpt-5" in command:  # a further judge beside one that needs GPUs
                options = [word for word in options if "qwen-vl" not in word]
                options = ["--imgedit-judge=fakes:Constant", *options]
            result = bench.run(*options)
        assert result.ret == 0, result.outlines
        items = bench.items.values()
        assert all(item["score"] is not None for item in items)
        assert server.asked


def test_classic_address_of_azure_works(bench):
    server = Azure("gpt-4o", key="sk-right")
    with provided(server) as host:
        spec = f"openai:{host}/openai/deployments/gpt-4o?api-version=2024-10-21#gpt-4o"
        result = bench.run(*SUITE, *OTHERS, f"--imgedit-judge={spec}")
        assert result.ret == 0, result.errlines
    assert all(item["score"] is not None for item in bench.items.values())


class ByKey(OpenAI):
    """Takes any key, and keeps those of the requests, which tell whose they are, however late they
    come.
    """

    def __init__(self, *models, quota):
        super().__init__(*models, key="", quota=quota)
        self.keys = []

    def answer(self, request):
        if request.method == "POST":
            self.keys.append(self.key_of(request))
        return super().answer(request)


@pytest.mark.full_for("1-27")
@pytest.mark.parametrize(("concurrency", "most"), [(1, 27), (8, 34)])
def test_exhausted_quota_costs_few_questions_and_no_answer(bench, monkeypatch, concurrency, most):
    server = ByKey("gpt-4o", quota=11)
    with provided(server) as host:

        def run(key):
            monkeypatch.setenv("OPENAI_API_KEY", key)
            return bench.run(
                *SUITE,
                f"--imgedit-judge=openai:{host}{server.base}#gpt-4o",
                f"--imgedit-set=judge.concurrency={concurrency}",
            )

        result = run("sk-first")
        assert result.ret == 1
        result.stdout.fnmatch_lines(["imgedit: INCOMPLETE: stopped: the server answered 429*"])
        assert sum(item["score"] is not None for item in bench.items.values()) == 10
        server.quota = None
        assert run("sk-second").ret == 0
        assert run("sk-third").ret == 0
    assert 1 + 10 + MOST_ALIKE <= server.keys.count("sk-first") <= most
    assert server.keys.count("sk-second") == 1 + 30
    assert server.keys.count("sk-third") == 0
