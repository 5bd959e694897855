"""Create a record file: its whole size is on disk before it is mapped, so that a full disk is an OSError here.

A store into a mapped page that the disk has no block for is a SIGBUS, which would kill training.
"""

from __future__ import annotations

import errno
import mmap
import os
import re
import sys
import zlib
from pathlib import Path
from typing import Optional, Tuple

from ctx_tracer.model import Identity
from ctx_tracer.record import layout
from ctx_tracer.record.plain import encode

# A process that is instrumented again, or one whose pid an earlier one had, takes the next free name.
MAX_NAMES = 64

_NAME = re.compile(r"^rank-\d+\.pid-(\d+)\b")


def writer_of(name: str) -> Optional[int]:
    """The process whose record, or copy of it, a file of this name is; None for other files."""
    found = _NAME.match(name)
    return int(found[1]) if found else None


def create(directory: str, identity: Identity, size: int) -> Tuple[str, mmap.mmap, layout.Areas]:
    """Create `rank-R.pid-P.ctxrec` in `directory`, readable by its owner only, and map it.

    Raises OSError if it cannot be: no directory, no space, no right, a size below `layout.MIN_SIZE`.
    """
    if sys.byteorder != "little":
        raise OSError(errno.ENOTSUP, "a record is little-endian and this machine is not")
    try:
        parts = layout.areas(size)
    except ValueError as error:
        raise OSError(errno.EINVAL, str(error)) from error
    path, descriptor = _open_new(directory, identity)
    try:
        try:
            _reserve(descriptor, parts.size)
            mapped = mmap.mmap(descriptor, parts.size)
        finally:
            os.close(descriptor)
        header = _header(identity, parts)
        mapped[8 : len(header)] = header[8:]
        mapped[:8] = header[:8]  # last: a reader takes a file without its magic for an unfinished one
    except BaseException:
        path.unlink()
        raise
    return str(path), mapped, parts


def _open_new(directory: str, identity: Identity) -> Tuple[Path, int]:
    stem = f"rank-{identity.rank}.pid-{identity.pid}"
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    for number in range(1, MAX_NAMES + 1):
        again = "" if number == 1 else f".{number}"
        path = Path(directory) / (stem + again + layout.SUFFIX)
        try:
            return path, os.open(path, flags, 0o600)
        except FileExistsError:
            continue
    raise OSError(errno.EEXIST, f"{MAX_NAMES} records of this process exist already", directory)


def _reserve(descriptor: int, size: int) -> None:
    try:
        os.posix_fallocate(descriptor, 0, size)
    except OSError as error:
        # A filesystem without allocation; any other error is the disk's answer.
        if error.errno not in (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL):
            raise
        zeros = bytes(1 << 20)
        written = 0
        while written < size:
            written += os.pwrite(descriptor, zeros[: size - written], written)


def _header(identity: Identity, parts: layout.Areas) -> bytes:
    data = identity.to_dict()
    room = layout.HEADER_SIZE - layout.HEADER.size
    payload = encode(data)
    # Ever shorter strings and command lines: 12 bytes of JSON is the most one character takes.
    for limit, arguments in ((1024, 16), (128, 8), (32, 0)):
        if len(payload) <= room:
            break
        data["command"] = data["command"][:arguments]
        data["axes"] = dict(list(data["axes"].items())[:arguments])
        payload = encode(data, limit)
    fields = (layout.MAGIC, layout.VERSION, len(payload), parts.size)
    places = (layout.TABLE_OFFSET, layout.TABLE_SIZE, *parts.definitions, *parts.findings, *parts.ring)
    head = layout.HEADER.pack(*fields, *places, 0, 0)[:-4]
    return head + zlib.crc32(payload, zlib.crc32(head)).to_bytes(4, "little") + payload
