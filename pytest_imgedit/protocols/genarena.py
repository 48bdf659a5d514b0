"""GenArena's question about two edits: one message, with its prompt from the user's clone."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

from pytest_imgedit.core import results
from pytest_imgedit.core.pairs import EditPair
from pytest_imgedit.core.reply import CHOICE_SCALE, Grammar
from pytest_imgedit.core.requests import Preparation
from pytest_imgedit.protocols.protocol import Call, Parts, Protocol, Replies, Row, mean_row

#: The name of its call, and of the number that its reply holds.
_CALL = "duel"
_CHOICE = "score"
_PROMPT = "PROMPT_TEXT"


class GenArena(Protocol):
    """The question of GenArena's `build_prompt` in `prompts/mmrb2.py`: a duel without a tie.

    Images are sent as they are stored. Under `compat` a reply is read as `parse_response` reads
    it, in which "Image B" is a vote for A. One that cannot be read is an error of its order under
    both variants, while GenArena makes a tie of both orders.
    """

    name = "genarena"
    scale = CHOICE_SCALE
    prompt_files = ("genarena/prompts/mmrb2.py", "prompts/mmrb2.py", "mmrb2.py")
    pins: ClassVar[Mapping[str, str]] = {
        _PROMPT: "423ee2cf46bca6264baf79790aff367bee572139e42712a980598bca2e766dc6"
    }

    def calls(self, pair: EditPair) -> Sequence[Call]:
        """Return the one call, whose parts are those of GenArena in their order."""
        sources: Parts = tuple(("image", name) for name in pair.source_names)
        parts: Parts = (
            ("text", self.prompts[_PROMPT]),
            ("text", "[ORIGINAL PROMPT TO MODEL:]"),
            ("text", pair.instruction),
            ("text", "[INPUT IMAGE FROM PROMPT:]"),
            *sources,
            ("text", "[RESPONSE A:]"),
            ("image", "first"),
            ("text", "[RESPONSE B:]"),
            ("image", "second"),
        )
        grammar = Grammar(
            "choice", (_CHOICE,), CHOICE_SCALE, labels=("better_response",), compat="genarena"
        )
        sent = Preparation(codec="png")
        return [Call(_CALL, parts, grammar, preparation=sent, max_new_tokens=4096)]

    def item(self, pair: EditPair, replies: Replies) -> Mapping[str, float]:
        """Return 1 if the first edit is better, and 0 if the second is; nothing for a reply that
        `compat` cannot read.
        """
        return replies.get(_CALL, {})

    def tables(self, items: Sequence[results.Item]) -> Sequence[Row]:
        """Return the mean share of edits that are shown first."""
        return [mean_row("score", items, ["score"], self.scale)]
