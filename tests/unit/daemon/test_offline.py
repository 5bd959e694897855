"""Records that lie somewhere: in directories of all nodes, twice, damaged, in bundles."""

from __future__ import annotations

import io
import json
import os
import shutil
import tarfile
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from ctx_tracer.cli.html import html_of
from ctx_tracer.daemon.bundle import unpack, write_bundle
from ctx_tracer.daemon.offline import report_of_records
from ctx_tracer.model import Finding, Identity, Region
from ctx_tracer.record import layout
from ctx_tracer.record.reader import RecordError
from ctx_tracer.record.writer import RecordWriter

IDENTITY = Identity("job-7", 0, 0, 2, 100, 1, "node-0", 1_000, "3.3.1", "3.11", "0.1", ("train.py",))
NASTY = '<script>alert("x")</script>&'


def record(folder: Path, rank: int, *, replayed: bool = True, numel: int = 8, **fields: object) -> Path:
    """What a rank leaves that captures one block with an all_reduce in it."""
    folder.mkdir(parents=True, exist_ok=True)
    identity = replace(IDENTITY, rank=rank, pid=100 + rank, host=f"node-{rank}", **fields)
    writer = RecordWriter.create(str(folder), identity, layout.MIN_SIZE)
    ranks = {"kind": "collective", "ranks": [0, 1], "group": 0, "peer": None, "from_start": True}
    lane = writer.define("lane", ranks)
    call = writer.define(
        "call", {"op": "all_reduce", "dtype": "float32", "root": None, "reduce": None, "source": "t:1"}
    )
    path = writer.define("path", {"name": NASTY, "mode": "reentrant", "source": "t:2"})
    writer.region("capturing", 1, path, 0, 0, 0, 0, 0)
    writer.collective(0, layout.ENTERED, 0, 5, (1, 1, numel, 5, 1, lane, call))
    writer.region("captured", 1, path, 0, 0, 0, 0, 2)
    if not replayed:
        writer.detail("not_replayed", {"token": 1, "why": "no input needs a gradient"})
    writer.step(0, 1, int(replayed), 2, 10)
    return Path(writer.path)


def rules(*paths: Path, run: str | None = None) -> list[tuple[str, list[int]]]:
    return [(f["rule"], f["ranks"]) for f in report_of_records(paths, run)["findings"]]


def test_all_nodes_are_compared_wherever_their_records_lie(tmp_path: Path) -> None:
    one, two = record(tmp_path / "a", 0), record(tmp_path / "deep" / "er", 1, replayed=False)
    assert rules(one) == rules(two) == []
    assert rules(one, two) == rules(two, one) == rules(tmp_path) == [("CT202", [0, 1])]


def test_a_copy_counts_once_and_the_one_that_knows_most(tmp_path: Path) -> None:
    one = record(tmp_path, 0)
    early = shutil.copy(one, tmp_path / f"copy{layout.SUFFIX}")
    report = report_of_records([tmp_path, one, Path(early)])
    assert [process["rank"] for process in report["processes"]] == [0]
    # A copy that was made while it ran, under a name that comes first or last.
    writer = RecordWriter.create(str(tmp_path), replace(IDENTITY, rank=1, pid=101), layout.MIN_SIZE)
    for name in "az":
        shutil.copy(writer.path, tmp_path / f"{name}{layout.SUFFIX}")
    writer.set_progress(7, 0, 0)
    report = report_of_records([tmp_path])
    assert [(process["rank"], process["step"]) for process in report["processes"]] == [(0, 0), (1, 7)]


def test_several_runs_must_be_told_apart(tmp_path: Path) -> None:
    record(tmp_path, 0)
    record(tmp_path, 1, run="job-8", numel=9)
    with pytest.raises(RecordError, match=r"several runs: job-7, job-8; choose one"):
        rules(tmp_path)
    assert rules(tmp_path, run="job-8") == []
    with pytest.raises(RecordError, match="no records of run job-9, but of job-7, job-8"):
        rules(tmp_path, run="job-9")
    empty = tmp_path / "nothing"
    empty.mkdir()
    with pytest.raises(RecordError, match="holds no records"):
        rules(empty)


def test_a_damaged_record_makes_it_undecided(tmp_path: Path) -> None:
    record(tmp_path, 0)
    bad = record(tmp_path, 1)
    bad.write_bytes(bad.read_bytes()[:100])
    report = report_of_records([tmp_path])
    assert report["verdict"] == "undecided"
    assert any(reason.startswith("A record could not be read: ") for reason in report["undecided"])


def test_a_bundle_is_read_like_the_records_in_it(tmp_path: Path) -> None:
    record(tmp_path / "records", 0)
    record(tmp_path / "records", 1, replayed=False)
    (tmp_path / "records" / "notes.txt").write_text("private")
    target = tmp_path / "job.ctxbundle"
    assert write_bundle(tmp_path / "records", target) == 2
    assert target.stat().st_size < 20_000
    with tarfile.open(target) as archive:
        assert all((m.uid, m.uname) == (0, "") and "/" not in m.name for m in archive)
    assert rules(target) == rules(tmp_path / "records") == [("CT202", [0, 1])]
    assert rules(tmp_path) == [("CT202", [0, 1])], "found beside the records themselves"
    with pytest.raises(RecordError, match="holds no records"):
        write_bundle(tmp_path, tmp_path / "x.ctxbundle")
    assert not list(tmp_path.glob(".*part"))


def test_an_archive_of_a_stranger_cannot_write_elsewhere(tmp_path: Path) -> None:
    bundle = tmp_path / "bad.ctxbundle"
    with tarfile.open(bundle, "w:gz") as archive:
        for name in ("../../escaped.ctxrec", "/tmp/escaped.ctxrec", "a/../b.ctxrec"):
            member = tarfile.TarInfo(name)
            member.size = 3
            archive.addfile(member, io.BytesIO(b"abc"))
        link = tarfile.TarInfo("link.ctxrec")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    inside = tmp_path / "inside"
    inside.mkdir()
    assert {path.parent for path in unpack(bundle, inside)} == {inside}
    assert len(list(inside.iterdir())) == 3
    assert not (tmp_path / "escaped.ctxrec").exists()
    for content in (b"", b"no archive", bundle.read_bytes()[:60]):
        bundle.write_bytes(content)
        with pytest.raises(RecordError, match="is no bundle"):
            unpack(bundle, inside)


class Page(HTMLParser):
    """The elements and the text of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [name for name, _ in attrs]

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_page_needs_nothing_else_and_names_are_no_markup(tmp_path: Path) -> None:
    record(tmp_path, 0)
    record(tmp_path, 1, replayed=False)
    report = report_of_records([tmp_path])
    page = Page()
    page.feed(html_of(report))
    assert NASTY in page.text
    assert "CT202 rank-regions-diverged" in page.text
    assert not {"script", "link", "img", "iframe"} & set(page.tags)
    assert not {"src", "href", "onclick"} & set(page.attributes)
    assert json.dumps(report)
    empty = Page()
    empty.feed(html_of({**report, "findings": [], "undecided": [], "processes": []}))
    assert "table" in empty.tags


def test_a_finding_of_one_rank_is_among_them(tmp_path: Path) -> None:
    folder = tmp_path / str(os.getpid())
    folder.mkdir()
    writer = RecordWriter.create(str(folder), IDENTITY, layout.MIN_SIZE)
    writer.finding(Finding("CT105", ranks=(0,), processes=(100,), region=Region("layers.0"), first_step=3))
    writer.close()
    assert rules(folder) == [("CT105", [0])]
