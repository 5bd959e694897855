"""One archive of a node's records, for sending to where somebody looks at them."""

from __future__ import annotations

import tarfile
import zlib
from collections.abc import Iterable
from pathlib import Path

from ctx_tracer.record.layout import SUFFIX
from ctx_tracer.record.reader import RecordError

BUNDLE_SUFFIX = ".ctxbundle"
_LARGEST = 1 << 30  # bytes of one member: a record is 8 MiB, and an archive may lie
_MOST = 1 << 16  # members
_BROKEN = (OSError, EOFError, tarfile.TarError, zlib.error)


def write_bundle(directory: Path, target: Path) -> int:
    """Pack what processes left in `directory` into `target`; how many files that were. Raises OSError, RecordError.

    A record that is being written to is packed as it is at that moment.
    """
    files = sorted(path for path in directory.iterdir() if path.suffix in (SUFFIX, ".error") and path.is_file())
    if not any(path.suffix == SUFFIX for path in files):
        raise RecordError(f"{directory} holds no records")
    part = target.with_name(f".{target.name}.part")
    try:
        # A record is mostly zeros: the fastest level takes a hundredth of it away as well as the best.
        with tarfile.open(part, "w:gz", compresslevel=1) as archive:
            for path in files:
                archive.add(path, arcname=path.name, recursive=False, filter=_nobodys)
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)
    return len(files)


def unpack(bundle: Path, directory: Path) -> list[Path]:
    """Unpack the records of a bundle into `directory`; where they are. Raises RecordError for what is no bundle."""
    found: list[Path] = []
    try:
        with tarfile.open(bundle, "r:gz") as archive:
            for member in _few(archive):
                # Names come from a stranger's archive: only the last part of one is used, and only of a record.
                name = Path(member.name).name
                if not member.isfile() or not name.endswith(SUFFIX) or member.size > _LARGEST:
                    continue
                source = archive.extractfile(member)
                target = directory / f"{len(found)}-{name}"
                if source is not None:
                    with target.open("wb") as file:
                        while data := source.read(1 << 20):
                            file.write(data)
                    found.append(target)
    except _BROKEN as error:
        raise RecordError(f"{bundle} is no bundle: {error}") from error
    return found


def _few(archive: tarfile.TarFile) -> Iterable[tarfile.TarInfo]:
    for number, member in enumerate(archive):
        if number >= _MOST:
            return
        yield member


def _nobodys(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Without who owns it here."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member
