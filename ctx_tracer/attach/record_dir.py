"""Where the records of a run live on this node, and who may look after them there."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from ctx_tracer.daemon.lock import try_lock
from ctx_tracer.record.mapping import writer_of

# A mapped file on one of these can raise SIGBUS in training when the server goes away.
_NETWORK = re.compile(
    r"nfs\d?|cifs|smb\w*|lustre|gpfs|beegfs\w*|ceph|glusterfs|afs|9p|orangefs|pvfs2|panfs|wekafs"
    r"|fuse\.(sshfs|gluster\w*|ceph\w*|s3fs|gcsfuse|juicefs|rclone|mount-s3|cvmfs\w*)"
)

# Of runs that found something: whoever wants to keep one for longer gives it a --record-dir. A record is 8 MB a rank.
_KEPT_S = 7 * 24 * 3600
_KEPT = 20


class UnusableDirectoryError(Exception):
    """The records cannot be kept there; the message says why and what to do."""


@dataclass
class RecordDir:
    """A directory of records with the lock of the one daemon that looks after it, held until `close`."""

    path: Path
    given: bool  # named by the user: never removed
    _lock: int

    def close(self) -> None:
        """Let another daemon look after the directory."""
        os.close(self._lock)

    def discard(self) -> None:
        """Remove a directory of our own, with what is in it; one that was given is let go of."""
        if not self.given:
            shutil.rmtree(self.path, ignore_errors=True)
        self.close()


def open_record_dir(run: str, given: Path | None) -> RecordDir:
    """The directory `given`, or one of its own under `$TMPDIR/ctx-tracer-UID`, mode 0700, locked.

    Several programs of one run on a node (one a device, say) get a directory each: `RUN`, `RUN~1`, ...
    Raises UnusableDirectoryError.
    """
    if given is not None:
        directory = make_record_dir(run, given)
        lock = try_lock(directory)
        if lock is None:
            raise UnusableDirectoryError(
                f"{directory} is looked after by another ctx-tracer; name another --record-dir, or none"
            )
        return RecordDir(directory, True, lock)
    base = _private_base()
    remove_old(base, time.time())
    for number in range(4096):  # more programs of one run on one node than any node has devices
        directory = _made(base / (_file_name(run) + (f"~{number}" if number else "")), private=True)
        lock = try_lock(directory)
        if lock is not None:
            return RecordDir(directory, False, lock)
    raise UnusableDirectoryError(f"every directory for run {run} under {base} is in use; set TMPDIR to another place")


def make_record_dir(run: str, given: Path | None) -> Path:
    """The directory `given`, or that of `run` under `$TMPDIR/ctx-tracer-UID`, made where it is missing.

    Raises UnusableDirectoryError.
    """
    if given is not None:
        return _made(given.absolute(), private=False)
    return _made(_private_base() / _file_name(run), private=True)


def dirs_of(run: str) -> list[Path]:
    """The directories on this node that hold records of `run`, of those not named by a user; none is made."""
    try:
        base, name = _private_base(), _file_name(run)
    except UnusableDirectoryError:
        return []
    return sorted(path for path in base.iterdir() if path.name == name or path.name.startswith(f"{name}~"))


def remove_old(base: Path, now_s: float) -> None:
    """Remove the directories of records under `base` that are older than a week or beyond the newest twenty.

    One that a daemon looks after, or of which a process is alive, stays. What cannot be removed is left.
    """
    ages: list[tuple[float, Path]] = []
    for directory in base.iterdir():
        try:
            if not directory.is_symlink() and directory.is_dir():
                ages.append((now_s - directory.stat().st_mtime, directory))
        except OSError:
            continue
    for place, (age_s, directory) in enumerate(sorted(ages)):
        if age_s > _KEPT_S or place >= _KEPT:
            _remove_unused(directory)


def _remove_unused(directory: Path) -> None:
    try:
        lock = try_lock(directory)
        if lock is None:
            return
        try:
            pids = [writer_of(path.name) for path in directory.iterdir()]
            if not any(Path(f"/proc/{pid}").exists() for pid in pids if pid is not None):
                shutil.rmtree(directory)
        finally:
            os.close(lock)
    except OSError:
        return


def filesystem_of(path: Path, mounts: str) -> str:
    """The type of the file system that holds `path`, by the text of /proc/self/mountinfo; "" when unknown."""
    target, best, kind = str(path.resolve()), "", ""
    for line in mounts.splitlines():
        left, _, right = line.partition(" - ")
        fields = left.split()
        if len(fields) < 5 or not right:
            continue
        point = re.sub(r"\\(\d{3})", lambda octal: chr(int(octal[1], 8)), fields[4])
        inside = target.startswith(point.rstrip("/") + "/") or target == point
        if inside and len(point) >= len(best):
            best, kind = point, right.split()[0]
    return kind


def _private_base() -> Path:
    places = [Path(tempfile.gettempdir()), Path("/tmp"), Path("/var/tmp"), Path("/dev/shm")]  # noqa: S108, checked below
    reasons = []
    for place in places:
        try:
            return _made(place / f"ctx-tracer-{os.getuid()}", private=True)
        except UnusableDirectoryError as error:
            reasons.append(str(error))
    told = "; ".join(dict.fromkeys(reasons))
    raise UnusableDirectoryError(f"{told}; set TMPDIR or --record-dir to a local directory")


def _made(directory: Path, *, private: bool) -> Path:
    try:
        # A folder that was given is made, a whole path of them is a mistake in writing.
        directory.mkdir(mode=0o700, exist_ok=True)
        status = directory.lstat() if private else directory.stat()
        mounts = Path("/proc/self/mountinfo").read_text(errors="replace")
    except FileNotFoundError as error:
        raise UnusableDirectoryError(f"cannot make {directory}: there is no {directory.parent}") from error
    except OSError as error:
        raise UnusableDirectoryError(f"cannot make {directory}: {error.strerror}") from error
    # In a shared temporary directory somebody else may have put the name, or a link, there first.
    if private and (status.st_uid != os.getuid() or status.st_mode & 0o170077 != 0o040000):
        raise UnusableDirectoryError(f"{directory} is not a private directory of this user")
    if not os.access(directory, os.W_OK | os.X_OK):
        raise UnusableDirectoryError(f"cannot write in {directory}")
    kind = filesystem_of(directory, mounts)
    if _NETWORK.fullmatch(kind):
        raise UnusableDirectoryError(f"{directory} is on a network file system ({kind}); records need a local one")
    return directory


def _file_name(run: str) -> str:
    """`run` as one path element: unusual characters replaced, and a hash added where that lost something."""
    plain = re.sub(r"[^A-Za-z0-9._=-]", "_", run).lstrip(".")[:100]
    digest = hashlib.sha256(run.encode("utf-8", "surrogatepass")).hexdigest()
    return plain if plain and plain == run else f"{plain}-{digest[:8]}"
