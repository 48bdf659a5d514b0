"""Where the API of a server begins, and which models it lists."""

import difflib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from pytest_imgedit.core.text import first_of, shorten
from pytest_imgedit.kinds.server import AZURE, Server
from pytest_imgedit.kinds.server_error_bodies import parse

#: Bases of APIs below a host: OpenAI's, OpenRouter's, DashScope's, Gemini's.
BASES = ("/v1", "/api/v1", "/openai/v1", "/compatible-mode/v1", "/v1beta/openai")
#: The most seconds that one candidate may take, and the most candidates.
CANDIDATE_SECONDS = 5
CANDIDATES = 12
#: The most names of models in a line.
NAMES = 8


@dataclass(frozen=True)
class Listing:
    """What a server answers to `GET /models`: the status, 0 without an answer, and the names in it;
    `None` if the answer is no list.
    """

    status: int
    names: Sequence[str] | None = None

    @property
    def is_api(self) -> bool:
        """Whether a base URL with this answer is that of an API, which may want a key."""
        return self.names is not None or self.status == 401


def listed(server: Server, seconds: float | None = None) -> Listing:
    """Ask a server for its models, once, within the timeout of its options or in `seconds`."""
    import openai

    timeout = min(server.options.timeout, seconds or server.options.timeout)
    with server.connect(timeout=timeout, max_retries=0) as client:
        try:
            text = client.get("/models", cast_to=str)
        except openai.APIStatusError as error:
            return Listing(error.status_code)
        except Exception:
            return Listing(0)
    return Listing(200, _names(parse(text)))


def _names(body: Any) -> list[str] | None:
    """Return the names in a list of models: of objects with an `id` or a `name`; `None` for
    anything else.
    """
    models = body
    if isinstance(body, dict):
        models = body.get("data", body.get("models"))
    if not isinstance(models, list):
        return None
    entries = [model for model in models if isinstance(model, dict)]
    names = [entry.get("id") or entry.get("name") for entry in entries]
    return list(dict.fromkeys(name for name in names if isinstance(name, str)))


def names_near(model: str, names: Sequence[str]) -> str:
    """Return the names of a list, those most like `model` first, and the number of the others."""
    near = difflib.get_close_matches(model, names, n=NAMES, cutoff=0.0)
    shown = [repr(shorten(name, 200)) for name in near]
    others = len(names) - len(shown)
    listed_names = first_of(shown, NAMES)
    return f"{listed_names} and {others} more" if others else listed_names


def right_url(server: Server) -> tuple[str, Listing] | None:
    """Return the base URL near that of a server that answers as an API, with its answer: one that
    lists models, or else one that lists none or wants a key. Return `None` if none does, and for
    Azure's address.
    """
    if AZURE.search(server.url):
        return None
    second_best = None
    for url in candidates(server.url):
        listing = listed(replace(server, url=url), CANDIDATE_SECONDS)
        if listing.names:
            return url, listing
        if listing.is_api and second_best is None:
            second_best = (url, listing)
    return second_best


def candidates(url: str) -> list[str]:
    """Return base URLs that may be meant by one that is wrong: its folders, the longest first, each
    as it is and with `/v1`, and then the usual `BASES` of its host.
    """
    parts = urlsplit(url)
    paths = dict.fromkeys([*_folders(parts.path), *BASES])
    paths.pop(parts.path.rstrip("/"), None)
    urls = [urlunsplit((parts.scheme, parts.netloc, path, "", "")) for path in paths]
    return urls[:CANDIDATES]


def _folders(path: str) -> Iterator[str]:
    """Yield a path and the folders above it, each also with `/v1`."""
    names = [name for name in path.split("/") if name]
    for count in range(len(names), -1, -1):
        folder = "".join(f"/{name}" for name in names[:count])
        yield f"{folder}/v1"
        yield folder
