"""PNG files whose texts or profiles are too large, or named as Pillow's own data are, spoil their
pairs alone.
"""

from __future__ import annotations

import io
import json
import struct
import zlib
from functools import cache

import pytest
from PIL import Image

RUN = (
    "--imgedit-suite=pairs.json",
    "--imgedit-editor=fakes:Slow",
    "--imgedit-judge=fakes:Constant",
)


def png(*chunks: tuple[bytes, bytes]) -> bytes:
    """Return a good PNG of 32x32 pixels with further chunks behind its header."""
    buffer = io.BytesIO()
    Image.effect_noise((32, 32), 60).convert("RGB").save(buffer, "PNG")
    data = buffer.getvalue()
    more = b"".join(
        struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
        for name, body in chunks
    )
    return data[:33] + more + data[33:]


@cache
def squeezed(size: int) -> bytes:
    return zlib.compress(bytes(size), 9)


CHUNKS = {
    "text": [(b"zTXt", b"a\0\0" + squeezed(3 * 2**20))],
    "international-text": [(b"iTXt", b"a\0\1\0\0\0" + squeezed(3 * 2**20))],
    "much-text": [(b"zTXt", b"a%d\0\0" % n + squeezed(2**19)) for n in range(160)],
    "profile": [(b"iCCP", b"a\0\0" + squeezed(3 * 2**20))],
    "text-named-xmp": [(b"tEXt", b"xmp\0x")],
    "text-named-exif": [(b"tEXt", b"exif\0x")],
    "text-named-profile": [(b"tEXt", b"icc_profile\0" + b"x" * 2**19)],
    "text-named-transparency": [(b"tEXt", b"transparency\0x")],
    "text-cut-short": [(b"zTXt", b"a\0\0" + squeezed(2**10)[:-4])],
}


@pytest.mark.parametrize("place", ["source", "reference"])
@pytest.mark.parametrize("embed", [(), ("--imgedit-html-embed",)], ids=["linked", "embedded"])
@pytest.mark.everyday_for("linked-source", "embedded-reference")
def test_odd_chunks_end_no_run(bench, place, embed):
    (bench.path / "good.png").write_bytes(png())
    rows = [
        {
            "id": "good",
            "category": "physics",
            "instruction": "x",
            "image": "good.png",
            "reference": "good.png",
        }
    ]
    for name, chunks in CHUNKS.items():
        (bench.path / f"{name}.png").write_bytes(png(*chunks))
        images = {
            "image": "good.png",
            "reference": "good.png",
            {"source": "image"}.get(place, place): f"{name}.png",
        }
        rows.append({"id": name, "category": "physics", "instruction": "x", **images})
    (bench.path / "pairs.json").write_text(json.dumps(rows))
    fields = ('--imgedit-set=suite.fields.reference="reference"',)
    result = bench.run(*RUN, *fields, *embed, "--imgedit-max-errors=1.0")
    assert "INTERNALERROR" not in result.stdout.str()
    assert int(result.ret) in (0, 1)
    assert (bench.runs[-1] / "report.html").exists()
    items = bench.items
    assert items["good"]["status"] == "scored"
    kinds = {item["error"]["kind"] for item in items.values() if item["error"]}
    assert kinds <= ({"bad_image"} if place == "source" else {"bad_image", "judge"})
    if place == "source":
        assert set(bench.error_kinds) >= {"text", "international-text", "much-text"}
