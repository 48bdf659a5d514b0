"""Secrets that are known by their shape, whatever their parameter is called, come into no file and
on no screen.
"""

from __future__ import annotations

import base64
import json
import secrets

import pytest
from PIL import Image

from pytest_imgedit.core.redaction import Redactor, mask_shapes

#: An editor and a judge that say all that they are told, in their logs, an error, and a reply.
TALKER = """
from PIL import ImageOps
from pytest_imgedit import Answer
class Editor:
    def __init__(self, *, device, **params):
        self.params = params
        print("loading with", params, flush=True)
    def edit(self, request):
        if request.pair_id == "raises":
            raise RuntimeError(str(self.params))
        return ImageOps.invert(request.source)
class Judge:
    def __init__(self, *, device, **params):
        self.params = params
    def answer(self, questions):
        text = f"instruction: 5\\npreservation: 5\\nrealism: 5\\n{self.params}"
        return [Answer(error=text) if q.pair_id == "fails" else Answer(text) for q in questions]
"""


def letters(count: int) -> str:
    return base64.b32encode(secrets.token_bytes(count)).decode()[:count]


def jwt() -> str:
    parts = (b'{"alg":"HS256","typ":"JWT"}', b'{"sub":"1"}', secrets.token_bytes(32))
    return ".".join(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts)


def pem(kind: str) -> tuple[str, str]:
    """Return a private key, and a line out of its middle."""
    lines = [letters(64) for _ in range(4)]
    return "\n".join([f"-----BEGIN {kind}-----", *lines, f"-----END {kind}-----"]), lines[2]


def planted() -> dict[str, tuple[str, str]]:
    """Return values of parameters by name, each with the part of it that nobody may see."""
    word = {name: letters(20) for name in TEMPLATES}
    basic = base64.b64encode(f"user:{letters(12)}".encode()).decode()
    tokens = {
        "github": f"ghp_{letters(36)}",
        "github_fine": f"github_pat_{letters(22)}_{letters(40)}",
        "gitlab": f"glpat-{letters(20)}",
        "gitlab_deploy": f"gldt-{letters(20)}",
        "hub": f"hf_{letters(34)}",
        "openai": f"sk-proj-{letters(40)}",
        "aws": f"AKIA{letters(16)}",
        "google": f"AIza{letters(35)}",
        "google_user": f"ya29.{letters(60)}",
        "slack": f"xoxb-1234567890-{letters(24)}",
        "slack_app": f"xapp-1-{letters(24)}",
        "npm": f"npm_{letters(36)}",
        "pypi": f"pypi-{letters(60)}",
        "databricks": f"dapi{secrets.token_hex(16)}",
        "replicate": f"r8_{letters(37)}",
        "groq": f"gsk_{letters(52)}",
        "nvidia": f"nvapi-{letters(64)}",
        "langsmith": f"lsv2_pt_{letters(32)}",
        "stripe": f"sk_live_{letters(24)}",
        "sendgrid": f"SG.{letters(22)}.{letters(43)}",
        "vault": f"hvs.{letters(40)}",
        "docker": f"dckr_pat_{letters(27)}",
        "telegram": f"123456789:{letters(35)}",
        "jwt": jwt(),
    }
    keys = {
        "rsa": pem("RSA PRIVATE KEY"),
        "pkcs8": pem("PRIVATE KEY"),
        "ssh": pem("OPENSSH PRIVATE KEY"),
    }
    return {
        **{name: (TEMPLATES[name].format(part), part) for name, part in word.items()},
        "other_header": (f"Basic {basic}", basic),
        **{name: (token, token) for name, token in tokens.items()},
        "sentence": (f"use {tokens['hub']} or so", tokens["hub"]),
        **keys,
        "cut_key": (keys["rsa"][0][:200], keys["rsa"][0][100:160]),
        # known by their names alone
        **{name: (value, value) for name, value in ((name, letters(12)) for name in NAMES)},
    }


#: Where a secret stands in a text.
TEMPLATES = {
    "endpoint": "https://user:{}@example.org/v1?x=1",
    "endpoint_of_a_token": "https://{}@example.org/v1",
    "database": "postgres://u:{}@h:5432/db",
    "database_at": "postgres://u:p@{}@h:5432/db",
    "cache": "redis://:{}@h/0",
    "via": "socks5h://me:{}@127.0.0.1:9",
    "header": "Authorization: Bearer {}",
    "header_token": "Authorization: Token {}",
    "header_key": "X-Api-Key: {}",
    "header_cookie": "Cookie: a=1; session={}",
    "conn": "Server=x;Database=y;User ID=z;Password={};Encrypt=yes",
    "odbc": "DRIVER=x;SERVER=y;UID=z;PWD={}",
    "storage": "DefaultEndpointsProtocol=https;AccountName=x;AccountKey={}==;EndpointSuffix=core",
    "bus": "Endpoint=sb://x/;SharedAccessKeyName=y;SharedAccessKey={}=",
    "signed": "https://h/c?sv=2022&se=2030&sig={}%3D",
    "query": "https://h/v1?api_key={}&x=1",
    "query_key": "https://h/v1?x=1&key={}",
    "query_token": "https://h/v1?access_token={}",
    "amazon": "https://h/k?X-Amz-Credential=x&X-Amz-Signature={}",
    "call": "connect(user='x', password='{}')",
    "document": '{{"user": "x", "client_secret": "{}"}}',
    "mapping": "{{'user': 'x', 'access_token': '{}'}}",
    "variable": "export MY_API_KEY={}",
    "quoted_url": "url='https://h/v1?api_key={}', timeout=5",
}
#: Names of parameters whose values are secrets whatever they look like.
NAMES = ("bearer", "creds", "pat", "signingKey", "github_pat", "account_key")


@pytest.fixture
def told(bench):
    """Write a suite, a talker and a config with all secrets; return what was planted."""
    Image.effect_noise((32, 32), 60).save(bench.path / "a.png")
    (bench.path / "talker.py").write_text(TALKER)
    values = planted()
    table = "".join(f"{name} = {json.dumps(value)}\n" for name, (value, _) in values.items())
    shaped = [value for name, (value, _) in values.items() if name not in NAMES]
    inside = f"nested = {{ deeper = [{', '.join(map(json.dumps, shaped))}] }}\n"
    (bench.path / "c.toml").write_text(
        f"[editor]\nplain = 'a plain word'\n{table}{inside}[judge]\n{table}"
    )
    return values


def run(bench, *names: str, more: tuple[str, ...] = ()):
    rows = [
        {"id": name, "category": "physics", "instruction": "x", "image": "a.png"} for name in names
    ]
    (bench.path / "pairs.json").write_text(json.dumps(rows))
    models = (
        "--imgedit-suite=pairs.json",
        "--imgedit-editor=talker:Editor",
        "--imgedit-judge=talker:Judge",
    )
    return bench.run_with_workers(
        *models, "--imgedit-config=c.toml", "--junitxml=junit.xml", "-v", "-rA", *more
    )


def leaks(bench, result, values) -> list[str]:
    """Name what of the secrets stands where."""
    texts = {"screen": result.stdout.str() + result.stderr.str()}
    folders = (bench.path / ".imgedit", bench.path / "benchmarks")
    files = [
        path
        for folder in folders
        for path in folder.rglob("*")
        if path.is_file() and path.suffix != ".png"
    ]
    for path in [bench.path / "junit.xml", *files]:
        texts[path.name] = path.read_text("utf-8", "replace")
    assert {"results.json", "report.md", "report.html", "run.log", "verdicts.jsonl"} <= set(texts)
    return [
        f"{name} in {place}"
        for place, text in texts.items()
        for name, (_, part) in values.items()
        if part in text
    ]


def test_secrets_by_their_shape_are_in_no_results_and_no_baseline(bench, told):
    result = run(bench, "one", "two", more=("--imgedit-save=main",))
    result.assert_outcomes(passed=2)
    assert (bench.path / "benchmarks" / "baselines" / "main.json").exists()
    assert leaks(bench, result, told) == []
    params = bench.results["editor"]["params"]
    assert len(told) >= 50
    assert params["plain"] == "a plain word"
    assert set(params) == {"plain", "nested", *told}
    assert params["endpoint"].endswith("@example.org/v1?x=1"), "where it is asked is no secret"


def test_secrets_of_the_environment_are_known_by_their_shape_too(bench, told, monkeypatch):
    """A worker prints its environment, a variable a line, and whole lines of a key."""
    variables = {f"PLAIN_{number}": value for number, (value, _) in enumerate(told.values())}
    for name in variables:
        monkeypatch.setenv(name, variables[name])
    (bench.path / "c.toml").write_text("")
    (bench.path / "talker.py").write_text(
        f"import os\n{TALKER}".replace(
            "self.params = params",
            "self.params = dict(os.environ)\n        print(*os.environ.values(), sep='\\n', "
            "flush=True)",
        )
    )
    result = run(bench, "one", "raises")
    shaped = {name: value for name, value in told.items() if name not in NAMES}
    assert leaks(bench, result, shaped) == []
    assert "PATH" in (bench.runs[-1] / "run.log").read_text()


@pytest.mark.parametrize("name", ["hub", "openai", "npm", "jwt"])
@pytest.mark.everyday_for("hub")
def test_secrets_in_the_name_of_a_model_or_suite_come_into_no_file(bench, told, name):
    token = told[name][0]
    (bench.path / token).mkdir()
    for image in ("one", "two"):
        Image.effect_noise((32, 32), 60).save(bench.path / token / f"{image}.png")
    Image.effect_noise((32, 32), 60).save(bench.path / token / "a.png")
    (bench.path / "c.toml").write_text("")
    result = run(
        bench, "one", "two", more=(f"--imgedit-editor=folder:{token}", "--imgedit-save=main")
    )
    result.assert_outcomes(passed=2)
    assert leaks(bench, result, {name: told[name]}) == []
    assert bench.results["editor"]["spec"] == "folder:***"


@pytest.mark.parametrize(
    "spec",
    [
        "diffusers:https://u:{}@h/m",
        "openai-images:https://u:{}@h#m",
        "openai-images:http://h/?api_key={}#m",
    ],
)
def test_secrets_in_a_spec_that_is_refused_are_in_no_line(bench, spec):
    secret = letters(20)
    result = bench.pytester.runpytest_inprocess(
        f"--imgedit-editor={spec.format(secret)}", "--imgedit-limit=1"
    )
    assert result.ret == 4
    assert len(result.errlines) == 2, result.errlines
    assert secret not in result.stdout.str() + result.stderr.str()


def test_ordinary_text_is_not_redacted():
    for text in (
        "instruction: 5",
        "pad_token='<|endoftext|>', eos_token=[EOS], max_new_tokens=512, num_tokens=12345678",
        "sorted(key=lambda pair: pair.id)",
        "unexpected token: everything",
        "https://example.org:8080/v1?page=2&seed=12345678",
        "KeyError: 'a key of nobody'",
        "the password was never asked for",
        "out of memory: 123456789 bytes",
        "npm_config_registry, hf_device_map_of_all_parts, sk_test",
        "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
    ):
        assert mask_shapes(text) == text


def test_secrets_by_their_shape_are_in_no_error_and_no_reply(bench, told):
    result = run(bench, "raises", "fails", "good")
    result.assert_outcomes(passed=1, failed=2)
    assert leaks(bench, result, told) == []


@pytest.mark.parametrize(
    "written",
    [
        "sk%2Fabc%2Bdef%20ghi%26%22jk",
        "sk%2fabc%2bdef%20ghi%26%22jk",
        "sk%2Fabc%2Bdef+ghi%26%22jk",
        "sk/abc%2Bdef%20ghi%26%22jk",
        "sk/abc+def ghi&amp;&quot;jk",
        'sk/abc+def ghi&amp;"jk',
        'sk/abc+def ghi&\\"jk',
        'sk\\/abc+def ghi&\\"jk',
    ],
)
def test_a_known_secret_that_is_encoded_is_masked(written):
    redactor = Redactor({"MY_KEY": 'sk/abc+def ghi&"jk'})
    assert redactor.text(f"got x={written}, sorry") == "got x=***, sorry"
