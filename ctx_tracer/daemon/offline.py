"""The report of records that lie somewhere: of one node or of all, after the job or while it runs."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from ctx_tracer import known_issues
from ctx_tracer.daemon.bundle import BUNDLE_SUFFIX, unpack
from ctx_tracer.daemon.observed import Observed
from ctx_tracer.model import MATCH, UNDECIDED
from ctx_tracer.record.layout import SUFFIX
from ctx_tracer.record.reader import RecordError, RecordReader
from ctx_tracer.verdict.job import RunInfo
from ctx_tracer.verdict.ranks import Ranks
from ctx_tracer.verdict.report import build_report
from ctx_tracer.verdict.text import sentence

_MOST_UNREADABLE = 8  # named one by one


def report_of_records(paths: Sequence[Path], run: str | None = None) -> dict[str, Any]:
    """The report of records, of bundles of them, and of all that lie below directories, as far as records can tell.

    They cannot tell how a process ended. A record that is there twice (a copy beside a log) counts once. `run` chooses
    among several. Raises OSError; RecordError where there is no record, or records of more than one run.
    """
    with ExitStack() as stack:
        unreadable: list[str] = []
        readers = _readers(list(_files(paths, stack)), unreadable, stack)
        readers = _of_one_run(paths, readers, run, unreadable)
        ranks = Ranks()
        observed = [
            Observed(path, reader, None, ranks.speaker(reader.identity, reader.definitions)) for path, reader in readers
        ]
        for one in observed:
            one.read({}, lambda _finding: None, last=True)
            if one.speaker is not None and one.reader.progress().clean_end:
                ranks.ended(one.speaker, in_good_order=True)
        ranks.finish()
        first = min((reader.identity for _, reader in readers), key=lambda i: (i.rank, i.started_ns))
        started_ns = min(reader.identity.started_ns for _, reader in readers)
        info = RunInfo(first.run, first.attempt, first.command, first.tracer_version, started_ns)
        report = build_report(info, [one.record() for one in observed], known_issues.load(), ranks=ranks)
    if unreadable:
        report["undecided"] = [*report["undecided"], *_told(unreadable)]
        report["verdict"] = UNDECIDED if report["verdict"] == MATCH else report["verdict"]
        report["sentence"] = sentence(report)
    return report


def _files(paths: Iterable[Path], stack: ExitStack) -> Iterator[Path]:
    for path in paths:
        if path.is_dir():
            inside = [file for file in path.rglob("*") if file.suffix in (SUFFIX, BUNDLE_SUFFIX) and file.is_file()]
            yield from _files(sorted(inside), stack)
        elif path.suffix == BUNDLE_SUFFIX:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="ctx-tracer-"))
            yield from unpack(path, Path(folder))
        else:
            yield path


def _readers(files: Sequence[Path], unreadable: list[str], stack: ExitStack) -> list[tuple[Path, RecordReader]]:
    """Each record once: of copies the one that knows most."""
    known: dict[tuple[str, int, int], tuple[Path, RecordReader]] = {}
    for path in files:
        try:
            reader = RecordReader(str(path))
        except RecordError as error:
            unreadable.append(str(error))
            continue
        stack.callback(reader.close)
        identity = reader.identity
        key = (identity.host, identity.pid, identity.started_ns)
        other = known.get(key)
        if other is None or other[1].progress().time_ns < reader.progress().time_ns:
            known[key] = (path, reader)
    return sorted(known.values(), key=lambda one: (one[1].identity.rank, one[1].identity.started_ns))


def _of_one_run(
    paths: Sequence[Path], readers: list[tuple[Path, RecordReader]], run: str | None, unreadable: Sequence[str]
) -> list[tuple[Path, RecordReader]]:
    where = ", ".join(map(str, paths))
    if not readers:
        raise RecordError(unreadable[0] if unreadable else f"{where} holds no records")
    runs = sorted({reader.identity.run for _, reader in readers})
    if run is None and len(runs) > 1:
        raise RecordError(f"{where} holds records of several runs: {', '.join(runs)}; choose one")
    chosen = [one for one in readers if run is None or one[1].identity.run == run]
    if not chosen:
        raise RecordError(f"{where} holds no records of run {run}, but of {', '.join(runs)}")
    return chosen


def _told(unreadable: Sequence[str]) -> list[str]:
    told = [f"A record could not be read: {reason}." for reason in unreadable[:_MOST_UNREADABLE]]
    more = len(unreadable) - len(told)
    return [*told, f"{more} more records could not be read."] if more > 0 else told
