"""A server with OpenAI's chat completions that judges pixels: it grades one edit, or says which of
two is nearer to the right one.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import io
import json
import re
from collections import Counter
from contextlib import contextmanager
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np
from api_server import APIServer, completion
from PIL import Image
from serving import serve

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

#: Standard deviation of the noise in the judged difference of two edits, in shares of the way from
#: the source to the right edit.
NOISE = 0.1
INSTRUCTION = re.compile(r"^Instruction: (.*)$", re.MULTILINE)


class PixelJudge:
    """Knows the `right` edits by the pixels of the source and the instruction.

    It judges as the name of the model says: `first` prefers the edit that is shown first, `worse`
    the worse one, and `noisy-P` chooses the first of two equal edits with the probability P; its
    noise is a function of the question. `asked` counts questions about one `edit` and about two, a
    `duel`; `pairs` holds the two edits of each of those, as data URLs.
    """

    def __init__(self, right: Mapping[tuple[bytes, str], Image.Image]) -> None:
        self.right = right
        self.asked: Counter[str] = Counter()
        self.pairs: list[tuple[str, str]] = []
        self.share = functools.cache(self._share)

    def answer(self, fields: Any) -> tuple[int, Any]:
        """Answer a request, as `APIServer` asks."""
        return 200, completion(self.reply(fields))

    def reply(self, fields: Any) -> str:
        images = image_urls(fields)
        (instruction,) = INSTRUCTION.findall(text_of(fields))
        source, *edits = images
        shares = [self.share(source, edit, instruction) for edit in edits]
        if len(edits) == 1:
            self.asked["edit"] += 1
            grade = round(10 * shares[0])
            return f"instruction: {grade}\npreservation: {grade}\nrealism: {grade}"
        self.asked["duel"] += 1
        self.pairs.append((edits[0], edits[1]))
        better = self._better(fields, shares)
        return json.dumps({"reason": f"{better} is nearer to what is asked", "better": better})

    def _better(self, fields: Any, shares: Sequence[float]) -> str:
        model = fields["model"]
        if model == "first":
            return "A"
        lead = shares[0] - shares[1]
        if model == "worse":
            return "A" if lead < 0 else "B"
        name, _, preference = model.partition("-")
        assert name == "noisy", model
        content = json.dumps(fields["messages"]).encode()
        noise = np.random.default_rng([*hashlib.sha256(content).digest()]).normal()
        drawn = noise + NormalDist().inv_cdf(float(preference))
        return "A" if lead + NOISE * drawn > 0 else "B"

    def _share(self, source: str, edit: str, instruction: str) -> float:
        """How much of the way from the source to the right edit an edit has gone; 0 for another
        instruction.
        """
        before = _pixels(source)
        right = self.right.get((before.tobytes(), instruction))
        if right is None:
            return 0.0
        after, now = (np.asarray(right, np.float64), _pixels(edit))
        if now.shape != after.shape:
            return 0.0
        way = np.abs(before - after).mean()
        return float(max(0.0, 1 - np.abs(now - after).mean() / way))


def _pixels(url: str) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(image_bytes(url))).convert("RGB"))


def image_bytes(url: str) -> bytes:
    """Decode a data URL."""
    return base64.b64decode(url.partition("base64,")[2])


def image_urls(fields: Any) -> list[str]:
    """Return the data URLs of a request, in their order."""
    content = fields["messages"][-1]["content"]
    return [part["image_url"]["url"] for part in content if part["type"] == "image_url"]


def text_of(fields: Any) -> str:
    """Return the text of the question of a request."""
    content = fields["messages"][-1]["content"]
    return "\n".join(part["text"] for part in content if part["type"] == "text")


@contextmanager
def pixel_server(
    right: Mapping[tuple[bytes, str], Image.Image],
) -> Iterator[tuple[str, PixelJudge]]:
    """Serve a `PixelJudge`; yield the base URL and the judge."""
    judge = PixelJudge(right)
    with APIServer(judge.answer) as server:
        serve(server)
        yield server.url, judge
        server.shutdown()
