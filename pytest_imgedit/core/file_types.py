"""What a file is, by its bytes, if it is not what its reader expects: a pointer to a large file, a
page of a server, an archive, a merge that was not finished, or empty.
"""

import json
import mmap
import re
from dataclasses import dataclass

#: Bytes by whose beginning a file is known.
_HEAD = 1024
#: Where the header of a tar archive names its format.
_TAR_MAGIC = slice(257, 262)
#: Bytes in which marks of a conflict are looked for.
_SEARCHED = 2**30

_AGAIN = "download it again"
_LFS_POINTER = ("a Git LFS pointer", "git lfs pull fetches the file itself")
#: What a file begins with, what it is then, and what mends it.
_STARTS = (
    (b"version https://git-lfs.github.com/spec/", *_LFS_POINTER),
    (b"version https://hawser.github.com/spec/", *_LFS_POINTER),
    (b"/annex/objects/", "a git-annex pointer", "git annex get fetches the file itself"),
    (b"# xet version ", "a Xet pointer", "download the file itself"),
    (b"PK\x03\x04", "a zip archive", "unpack it with unzip"),
    (b"PK\x05\x06", "an empty zip archive", _AGAIN),
    (b"\x1f\x8b", "a gzip archive", "unpack it with gunzip, or tar -xzf if it is a .tar.gz"),
    (b"\x28\xb5\x2f\xfd", "a zstd archive", "unpack it with unzstd"),
    (b"BZh", "a bzip2 archive", "unpack it with bunzip2"),
    (b"\xfd7zXZ\x00", "an xz archive", "unpack it with unxz"),
    (b"\x04\x22\x4d\x18", "an lz4 archive", "unpack it with unlz4"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive", "unpack it with 7z x"),
    (b"Rar!\x1a\x07", "a rar archive", "unpack it with unrar x"),
    (b"ARROW1\x00\x00", "an Arrow file", "to_parquet of the package datasets makes parquet of it"),
    (b"<svg", "an SVG drawing", "save it as PNG"),
    (b"SQLite format 3\x00", "an SQLite database", "save its rows as CSV or JSON"),
)
#: Zip archives that programs make for their own use, by a word of their first entry.
_ZIPPED = (
    (b"data.pkl", "pickled weights of PyTorch", "save them with safetensors.torch.save_file"),
    (b"[Content_Types].xml", "a workbook of Excel", "save it as CSV UTF-8"),
    (b"mimetypeapplication/vnd.oasis", "a workbook of LibreOffice", "save it as CSV UTF-8"),
)
_PAGE = re.compile(rb"<(?:!doctype html|html|head|body|title)\b")
#: The whole of what servers send instead of a file.
_ANSWERS = (
    b"404: not found",
    b"404 not found",
    b"not found",
    b"entry not found",
    b"access denied",
    b"forbidden",
    b"unauthorized",
    b"invalid username or password.",
    b"bad gateway",
)


@dataclass(frozen=True, slots=True)
class Misfit:
    """What a file is, and what mends it; `line` is 0 if that is true of the whole file."""

    found: str
    remedy: str
    line: int = 0

    def message(self, place: str, expected: str) -> str:
        """Return the line of an error about the file at `place`."""
        line = f":{self.line}" if self.line else ""
        return f"{place}{line}: {self.found}, expected {expected}: {self.remedy}"


EMPTY = Misfit("empty file", "download it or save it again")
_ZEROS = Misfit("zeros in the place of content", "download it or save it again")


def misfit(data: bytes | mmap.mmap) -> Misfit | None:
    """Return what a file is by its bytes; `None` if that may be what its reader expects.

    Marks of a conflict count at the beginning of any line, everything else at that of the file.
    """
    head = bytes(data[:_HEAD])
    if not head.strip() and len(data) <= _HEAD:
        return EMPTY
    if not head.strip(b"\0"):
        return _ZEROS
    return _by_beginning(head) or _as_answer(head, len(data)) or _conflict(data)


def _by_beginning(head: bytes) -> Misfit | None:
    """Return the pointer, the archive or the document of a server that begins so, if any."""
    start = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if start.startswith(b"PK\x03\x04"):
        for word, found, remedy in _ZIPPED:
            if word in start:
                return Misfit(found, remedy)
    for beginning, found, remedy in _STARTS:
        if start.startswith(beginning):
            return Misfit(found, remedy)
    if head[_TAR_MAGIC] == b"ustar":
        return Misfit("a tar archive", "unpack it with tar -xf")
    return _as_page(start) if start.startswith(b"<") else None


def _as_page(start: bytes) -> Misfit | None:
    """Return the HTML page, with its title, or the XML document that begins so, if any."""
    if _PAGE.search(start.lower()):
        title = re.search(rb"<title[^>]*>\s*([^<]{1,60})", start, re.IGNORECASE)
        shown = f" ({title[1].decode('utf-8', 'replace').strip()!a})" if title else ""
        return Misfit(f"an HTML page{shown}", f"{_AGAIN}, signed in if that page asks for it")
    if start.startswith(b"<?xml"):
        return Misfit("an XML document", f"{_AGAIN}: servers report errors so")
    return None


def _as_answer(head: bytes, size: int) -> Misfit | None:
    """Return the server's answer that a whole file of `size` bytes is, if any."""
    answer = head.strip()
    if size < _HEAD and answer.lower() in _ANSWERS:
        return Misfit(f"a server's answer {answer.decode()!r}", f"{_AGAIN}, signed in if need be")
    return None


def _conflict(data: bytes | mmap.mmap) -> Misfit | None:
    """Return the first conflict that git has marked, with its line; `None` if there is none."""
    for mark in (b"<<<<<<< ", b">>>>>>> "):
        start = 0
        if data[: len(mark)] != mark:
            line_break = data.find(b"\n" + mark, 0, _SEARCHED)
            if line_break < 0:
                continue
            start = line_break + 1
        return Misfit(
            "conflict markers of git",
            "git checkout --ours or --theirs takes one side, or save it again",
            data[:start].count(b"\n") + 1,
        )
    return None


def why_no_json(text: str, error: Exception) -> str:
    """Return what is wrong with a JSON text, by the parser's error; that it is cut short, if it
    ends where more must follow.
    """
    if not isinstance(error, json.JSONDecodeError):
        return str(error)
    is_cut = error.msg.startswith("Unterminated string") or not text[error.pos :].strip()
    return "it ends too early: cut short?" if is_cut else error.msg
