import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctx_tracer.attach import record_dir
from ctx_tracer.attach.record_dir import UnusableDirectoryError, filesystem_of, make_record_dir, open_record_dir
from ctx_tracer.daemon.lock import try_lock

MOUNTS = """\
22 1 8:1 / / rw - ext4 /dev/sda1 rw
30 22 0:25 / /home rw - nfs4 server:/home rw
31 30 0:26 / /home/me/scratch\\040disk rw - xfs /dev/sdb rw
32 22 0:27 / /tmp rw - tmpfs tmpfs rw
33 22 0:28 / /tmp rw - lustre mgs:/l rw
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/var/run-x", "ext4"),
        ("/home/me", "nfs4"),
        ("/homework", "ext4"),
        ("/home/me/scratch disk/a", "xfs"),
        ("/tmp/a", "lustre"),  # mounted over the other one
    ],
)
def test_the_file_system_of_a_path(path: str, kind: str) -> None:
    assert filesystem_of(Path(path), MOUNTS) == kind


@given(st.text())
def test_mounts_that_make_no_sense_do_no_harm(text: str) -> None:
    assert isinstance(filesystem_of(Path("/a/b"), text), str)


def test_network_file_systems_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in ("nfs", "nfs4", "lustre", "fuse.sshfs", "ceph", "gpfs", "beegfs", "cifs"):
        monkeypatch.setattr(record_dir, "filesystem_of", lambda *_, kind=kind: kind)
        with pytest.raises(UnusableDirectoryError, match=r"network file system .*records need a local one"):
            make_record_dir("run", tmp_path)
    for kind in ("ext4", "tmpfs", "overlay", "fuse.ext4", ""):
        monkeypatch.setattr(record_dir, "filesystem_of", lambda *_, kind=kind: kind)
        assert make_record_dir("run", tmp_path) == tmp_path


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def test_the_directory_is_private_and_one_daemons(temporary: Path) -> None:
    first, second = open_record_dir("run", None), open_record_dir("run", None)
    assert first.path == temporary / f"ctx-tracer-{os.getuid()}" / "run"
    assert second.path.name == "run~1"
    assert stat.S_IMODE(first.path.stat().st_mode) == stat.S_IMODE(first.path.parent.stat().st_mode) == 0o700
    first.close()
    again = open_record_dir("run", None)
    assert again.path == first.path
    again.discard()
    second.discard()
    assert list(first.path.parent.iterdir()) == []


@pytest.mark.parametrize("spoil", ["link", "mode", "file"])
def test_a_directory_that_somebody_prepared_is_not_used(temporary: Path, spoil: str) -> None:
    base = temporary / f"ctx-tracer-{os.getuid()}"
    if spoil == "link":
        (temporary / "theirs").mkdir(mode=0o700)
        base.symlink_to(temporary / "theirs")
    elif spoil == "mode":
        base.mkdir()
        base.chmod(0o777)
    else:
        base.write_text("")
    other = open_record_dir("run-of-a-test", None)
    try:
        assert base not in other.path.parents, "another place was found"
    finally:
        other.discard()


def test_a_given_directory_has_one_daemon_and_is_kept(tmp_path: Path) -> None:
    first = open_record_dir("run", tmp_path / "records")
    with pytest.raises(UnusableDirectoryError, match="another ctx-tracer"):
        open_record_dir("run", tmp_path / "records")
    first.discard()
    assert (tmp_path / "records").is_dir()


@given(st.text(max_size=300), st.text(max_size=300))
def test_every_name_is_one_path_element_and_two_names_are_two(one: str, other: str) -> None:
    name = record_dir._file_name(one)
    assert "/" not in name
    assert name not in ("", ".", "..")
    assert len(name.encode()) < 200
    if one != other:
        assert name != record_dir._file_name(other)


def test_a_path_of_directories_is_not_made(tmp_path: Path) -> None:
    assert make_record_dir("run", tmp_path / "new").is_dir()
    with pytest.raises(UnusableDirectoryError, match=r"cannot make .*/no/new: there is no .*/no$"):
        make_record_dir("run", tmp_path / "no" / "new")
    assert not (tmp_path / "no").exists()


def test_old_directories_are_removed_unless_somebody_uses_them(tmp_path: Path) -> None:
    def made(name: str, age_s: float, *files: str) -> Path:
        directory = tmp_path / name
        directory.mkdir()
        for file in files:
            (directory / file).touch()
        os.utime(directory, (1_000_000_000 - age_s,) * 2)
        return directory

    week = 7 * 24 * 3600
    old, new = made("old", week + 1, "rank-0.pid-99999999.ctxrec"), made("new", week - 1)
    alive = made("alive", week + 1, f"rank-0.pid-{os.getpid()}.ctxrec")
    locked = made("locked", week + 1)
    lock = try_lock(locked)
    assert lock is not None
    os.utime(locked, (0, 0))
    many = [made(f"many-{number}", number) for number in range(25)]
    record_dir.remove_old(tmp_path, 1_000_000_000)
    os.close(lock)
    assert [path.exists() for path in (old, new, alive, locked)] == [False, False, True, True]
    assert [path.exists() for path in many] == [True] * 20 + [False] * 5


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    theirs, base = tmp_path / "theirs", tmp_path / "base"
    theirs.mkdir()
    base.mkdir()
    (base / "link").symlink_to(theirs)
    record_dir.remove_old(base, 1e12)
    assert theirs.exists()
