"""What the line says that ends a run for the first answer of a server."""

from dataclasses import dataclass

from pytest_imgedit.core.images import checked_size
from pytest_imgedit.core.requests import EditRequest, Question
from pytest_imgedit.core.text import counted
from pytest_imgedit.kinds.server import AZURE, ServedModel
from pytest_imgedit.kinds.server_addresses import Listing, listed, names_near, right_url
from pytest_imgedit.kinds.server_changes import Changes

#: Fields that hold the most tokens of a reply.
LENGTHS = ("max_tokens", "max_completion_tokens")
EXAMPLE = "http://localhost:8000/v1"

Request = Question[bytes] | EditRequest[bytes]


@dataclass(frozen=True)
class Asked:
    """A request to a served model, and the section of a config that holds its parameters."""

    model: ServedModel
    request: Request
    section: str

    @property
    def path(self) -> str:
        """Where requests are posted, below the base URL."""
        return "/images/edits" if isinstance(self.request, EditRequest) else "/chat/completions"


@dataclass(frozen=True)
class Said:
    """The status of an answer, and what it says in one line."""

    status: int
    sentence: str

    def __str__(self) -> str:
        return f"{self.status}: {self.sentence}"


def refused_line(asked: Asked, said: Said, needed: Changes, rest: tuple[str, ...]) -> str:
    """Say which changes of the section a server needs to take requests; `rest` are fields that it
    does not take even then.
    """
    section = asked.section
    advice = ""
    if any(name in LENGTHS for name in rest):
        needed = needed.but("token_limit")
        advice = f"expected a smaller {section}.max_new_tokens"
    elif rest:
        advice = f"nothing in [{section}] keeps {' and '.join(rest)} out of requests"
    parts = [part for part in (needed.advice(section), advice) if part]
    return f"{_subject(asked.model)} does not take the request ({said}); {'; '.join(parts)}"


def final_line(asked: Asked, cause: str, said: Said) -> str:
    """Say why a server will never answer requests like this one, and what would help."""
    model = asked.model
    server = model.server()
    if cause == "key":
        return f"{server.key_problem(said.status)}: {said.sentence}"
    if cause == "quota":
        return f"{server.url} has no quota left for this key ({said})"
    if cause == "images":
        return f"{_subject(model)} does not take the pictures ({said}), expected a model that does"
    if cause == "context":
        return (
            f"{_subject(model)} has too short a context for {_size(asked.request)} ({said}); "
            f"expected {_room(asked)}"
        )
    if not server.model:
        return (
            f"{server.url} is no address of a server of scores: POST was answered with {said}, "
            'expected {"score": NUMBER}'
        )
    return _unknown_line(asked, cause, said)


def _subject(model: ServedModel) -> str:
    server = model.server()
    return f"{server.model!r} at {server.url}" if server.model else server.url


def _unknown_line(asked: Asked, cause: str, said: Said) -> str:
    """Say that a server does not have the model or, if its address lists no models and the answer
    does not blame the model, that the address is wrong.
    """
    server = asked.model.server()
    if AZURE.search(server.url):
        return f"{server.url} has no deployment {server.model!r} ({said})"
    listing = listed(server)
    if listing.names and server.model in listing.names:
        return (
            f"{server.url} lists {server.model!r}, but answered POST {server.url}{asked.path} with "
            f"{said}; expected a model and a server that take such requests"
        )
    if listing.names:
        names = names_near(server.model, listing.names)
        return f"{server.url} has no model {server.model!r} ({said}), expected one of {names}"
    if cause == "model" or listing.is_api:
        return (
            f"{server.url} has no model {server.model!r} ({said}); which it has is not known, "
            f"since {server.url}/models lists none"
        )
    wrong = f"{server.url} is not the base URL of an API: POST {server.url}{asked.path}"
    right = right_url(server)
    if right is None:
        return f"{wrong} was answered with {said}; expected a base URL such as {EXAMPLE}"
    url, there = right
    spec = f"{asked.model.name}:{url}#{_name(server.model, there)}"
    return f"{wrong} was answered with {said}; expected {spec}"


def _name(model: str, listing: Listing) -> str:
    """Return the name of a model, with those that a server lists if it is not among them."""
    if not listing.names or model in listing.names:
        return model
    return f"MODEL, with a model of {names_near(model, listing.names)}"


def _size(request: Request) -> str:
    """Say how large a request is."""
    if isinstance(request, EditRequest):
        images = list(request.sources)
        texts = [request.instruction]
    else:
        images = list(request.images.values())
        texts = [request.system, *(text for kind, text in request.parts if kind == "text")]
    characters = f"{sum(map(len, texts)):,} characters of text"
    if not images:
        return characters
    width, height = checked_size(images[0])
    pictures = counted(len(images), "picture")
    return f"{pictures} of {width} x {height} pixels and {characters}"


def _room(asked: Asked) -> str:
    """Say what gives a request more room."""
    options = asked.model.options
    advice = ["a larger context of the server (--max-model-len of vLLM)"]
    for name in ("max_new_tokens", "max_pixels"):
        if hasattr(options, name):
            advice.append(f"a smaller {asked.section}.{name} ({getattr(options, name)})")
    if isinstance(asked.request, Question) and asked.request.preparation.codec:
        advice[-1] = "a protocol that shows smaller pictures"
    return ", ".join(advice[:-1]) + f", or {advice[-1]}" if len(advice) > 1 else advice[0]
