"""What a rank says of the memory that its editor takes."""

from __future__ import annotations

import torch
from imgedit_verl.config import ImageEditConfig
from imgedit_verl.rank import RankEditor


def test_gpu_memory_is_told_where_there_is_a_gpu(monkeypatch, capfd):
    editor = RankEditor(ImageEditConfig("model"))
    monkeypatch.setattr("imgedit_verl.rank.dist.get_rank", lambda: 3)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda: 27 * 2**30)
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda: 28.5 * 2**30)
    editor.place = torch.device("cpu")
    editor._report_memory("loaded")
    assert capfd.readouterr().err == ""
    editor.place = torch.device("cuda", 0)
    editor._report_memory("moved to host memory")
    assert capfd.readouterr().err == (
        "imgedit-verl: rank 3: editor moved to host memory, GPU memory 27.0 GiB allocated, 28.5 "
        "GiB reserved\n"
    )
