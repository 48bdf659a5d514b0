"""Train the embedded judge; call again to go on.

python -m tools.train_embedded.judge --work FOLDER [--minutes M]
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import torch
from diffusers import DiffusionPipeline
from torch.nn import functional as F

from pytest_imgedit.kinds.compute.qwen_inputs import AssembledProcessor
from pytest_imgedit.suites.scenes import TEMPLATES
from tools.train_embedded.bank import EditBank
from tools.train_embedded.batched import BatchedJudge
from tools.train_embedded.edits import KINDS, make_edits
from tools.train_embedded.grades import ASPECTS, grade, rank_correlation, score
from tools.train_embedded.judge_model import image_processor, judge_model
from tools.train_embedded.loop import Trainer
from tools.train_embedded.pool import Pool
from tools.train_embedded.start import load_texts, start
from tools.train_embedded.text import GRADES, Texts, reply

if TYPE_CHECKING:
    from pathlib import Path

    from tools.train_embedded.loop import Losses
    from tools.train_embedded.pool import Batch

#: Pairs that are measured at once; every third batch holds edits of the embedded editor, where
#: there is one.
MEASURED = 32


class Grading(torch.nn.Module):
    """The judge with what it takes to teach it: replies as token ids, and the loss over them."""

    template: torch.Tensor
    grades: torch.Tensor
    near: torch.Tensor

    def __init__(self, model: Any, texts: Texts, smoothing: float, compiled: bool) -> None:
        super().__init__()
        self.judge = BatchedJudge(model, texts)
        self.run: Any = torch.compile(self.judge, dynamic=False) if compiled else self.judge
        template = texts.judge(reply((0, 0, 0), texts.protocol) + texts.judge.eos_token)[
            "input_ids"
        ]
        grades = texts.judge.convert_tokens_to_ids(GRADES)
        scale = torch.arange(len(GRADES)).float()
        near = torch.exp(-((scale[:, None] - scale[None]) ** 2) / (2 * smoothing**2))
        self.register_buffer("template", torch.tensor(template), persistent=False)
        self.register_buffer("grades", torch.tensor(grades), persistent=False)
        self.register_buffer("near", near / near.sum(1, keepdim=True), persistent=False)
        self.places = [place for place, token in enumerate(template) if token == grades[0]]

    def replies(self, grades: torch.Tensor) -> torch.Tensor:
        """Write grades (B, 3), 0 to 10, as reply tokens (B, R)."""
        ids = self.template.repeat(len(grades), 1)
        ids[:, self.places] = self.grades[grades]
        return ids

    def logits(self, batch: Batch, edited: torch.Tensor, replies: torch.Tensor) -> torch.Tensor:
        """Return the logits (B, R, V) that predict each token of the replies."""
        size, length = replies.shape
        pad = batch.tail.new_zeros(size, length)
        places = batch.tail_length[:, None] + torch.arange(length, device=replies.device)
        text = torch.cat([batch.tail, pad], dim=1).scatter(1, places, replies)
        run = self.run if torch.is_grad_enabled() else self.judge
        hidden = run(batch.drawn.source, edited, text)
        before = (places - 1)[..., None].expand(-1, -1, hidden.shape[-1])
        logits: torch.Tensor = self.judge.model.lm_head(hidden.gather(1, before))
        return logits

    def losses(self, batch: Batch, edited: torch.Tensor, true: torch.Tensor) -> Losses:
        """Cross-entropy of the grades, each spread over its neighbours, and of the words between
        them.
        """
        grades = true.round().long()
        replies = self.replies(grades)
        found = F.log_softmax(self.logits(batch, edited, replies).float(), dim=-1)
        spread = -(self.near[grades] * found[:, self.places][..., self.grades]).sum(-1)
        words = [place for place in range(replies.shape[1]) if place not in self.places]
        rest = F.nll_loss(found[:, words].flatten(0, 1), replies[:, words].flatten())
        return {**dict(zip(ASPECTS, spread.mean(0), strict=True)), "words": 0.1 * rest}

    @torch.no_grad()
    def answer(self, batch: Batch, edited: torch.Tensor) -> torch.Tensor:
        """Grade greedily, aspect after aspect: (B, 3)."""
        grades = torch.zeros(len(edited), 3, dtype=torch.long, device=edited.device)
        for number, place in enumerate(self.places):
            logits = self.logits(batch, edited, self.replies(grades))[:, place]
            grades[:, number] = logits[:, self.grades].argmax(-1)
        return grades


def _load_editor(folder: Path | None, device: str) -> Any:
    """Load the editor; `None` if there is none yet."""
    if folder is None or not (folder / "model_index.json").exists():
        return None
    pipeline = DiffusionPipeline.from_pretrained(
        str(folder), dtype=torch.float32, use_safetensors=True
    ).to(device)
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def measure(model: Grading, pool: Pool, bank: EditBank | None) -> dict[str, object]:
    """Return rank correlations with the true score, and mean scores by kind, on a pool that is not
    trained on.
    """
    rows: list[torch.Tensor] = []
    for number in range(pool.size // MEASURED):
        index = torch.arange(number * MEASURED, (number + 1) * MEASURED, device=pool.device)
        batch = pool.at(index, index % 2)
        edited, kinds = make_edits(batch.drawn)
        same, other = batch.drawn.same_source(), batch.drawn.other_reference()
        kinds[(kinds == list(KINDS).index("wrong")) & same & other] = len(KINDS) + 1
        if bank is not None and number % 3 == 2:
            batch, edited = bank.sample(MEASURED)
            kinds = torch.full_like(kinds, len(KINDS))
        with torch.autocast(pool.device, torch.bfloat16):
            answer = model.answer(batch, edited)
        true = score(grade(batch.drawn.source, edited, batch.drawn.reference))
        rows.append(torch.stack([score(answer.float()), true, kinds, batch.category], dim=1).cpu())
    table = torch.cat(rows)

    def rank(part: torch.Tensor) -> float:
        return round(rank_correlation(part[:, 0].tolist(), part[:, 1].tolist()), 3)

    names = [*KINDS, "editor", "other target"]
    kinds_found = [(number, table[table[:, 2] == number]) for number in range(len(names))]
    return {
        "spearman": rank(table),
        "categories": [rank(table[table[:, 3] == number]) for number in range(len(TEMPLATES))],
        "editor": rank(kinds_found[len(KINDS)][1]),
        "kinds": {
            names[number]: [round(float(value), 1) for value in part[:, :2].mean(0)]
            for number, part in kinds_found
            if len(part)
        },
    }


def main() -> None:
    """Train as far as the time allows; when it is done, write the weights."""
    given = start("judge", __doc__)
    config, device, stage = given.config, given.device, given.config["train"]
    texts = load_texts(given.work / "texts")
    editor = _load_editor(given.editor, device)
    if editor is not None:
        texts = Texts(editor.tokenizer, texts.judge)
    data, own = config["data"], config["editor"]
    pool = Pool(texts, config["seed"], data["capacity"], data["workers"], device)
    pool.wait(
        data["first"]
    )  # one after the other: loaders that start at the same time can fail to fork
    held_out = Pool(
        texts, config["seed"] + 1_000_000, data["held_out"], min(1, data["workers"]), device
    )
    held_out.wait(data["held_out"])

    network = judge_model(texts.judge, config["vision"], config["text"])
    model = Grading(network, texts, stage["smoothing"], compiled=device == "cuda").to(device)
    trainer = Trainer(
        network, given.work / "judge", steps=stage["steps"], learning_rate=stage["learning_rate"]
    )
    torch.manual_seed(config["seed"] + trainer.step)  # a later piece makes other draws
    trainer.log(parameters=sum(p.numel() for p in network.parameters()), records=pool.size)
    bank = held_out_bank = None
    if editor is not None:
        bank = EditBank(editor, pool, own["bank"])
        held_out_bank = EditBank(editor, held_out, held_out.capacity)
        for _ in range(own["bank"] // own["batch"] // 2):
            bank.add(own["batch"])
        for _ in range(32):
            held_out_bank.add(held_out.capacity // 32)

    def losses() -> Losses:
        if trainer.step % stage["measure_every"] == 0 and trainer.step:
            with torch.random.fork_rng():
                torch.manual_seed(0)
                trainer.log(records=pool.size, **measure(model, held_out, held_out_bank))
        from_editor = round(stage["batch"] * own["share"]) if bank is not None else 0
        batch = pool.sample(stage["batch"] - from_editor)
        edited, _ = make_edits(batch.drawn)
        if bank is not None:
            if trainer.step % own["every"] == 0:
                bank.add(own["batch"])
            other, edits = bank.sample(from_editor)
            batch, edited = batch.join(other), torch.cat([edited, edits])
        true = grade(batch.drawn.source, edited, batch.drawn.reference)
        with torch.autocast(device, torch.bfloat16):
            return model.losses(batch, edited, true)

    trainer.run(losses, given.stop_at)
    if trainer.done:
        network.load_state_dict(trainer.average.module.state_dict())
        trainer.log(records=pool.size, average=True, **measure(model, held_out, held_out_bank))
        shutil.rmtree(given.out, ignore_errors=True)
        network.to(torch.float16).save_pretrained(given.out, max_shard_size="15MB")
        processor = AssembledProcessor(texts.judge, image_processor(config["vision"]["patch_size"]))
        processor.save_pretrained(given.out)


if __name__ == "__main__":
    main()
