"""A protocol that shows the judge all images of a pair, in the pair's order, before the edit."""

from pytest_imgedit import Call, Grammar, Protocol, mean_row


class ShowsAll(Protocol):
    name = "all"

    def calls(self, pair):
        shown = [("image", name) for name in (*pair.images, "edited")]
        return [Call("done", tuple(shown), Grammar("lines", ("instruction",)))]

    def item(self, pair, replies):
        return {"score": replies["done"]["instruction"]}

    def tables(self, items):
        return [mean_row("done", items, ["score"])]
