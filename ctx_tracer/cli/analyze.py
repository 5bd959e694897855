"""`ctx-tracer analyze` and `bundle`: records of all nodes, looked at somewhere else."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ctx_tracer.attach.record_dir import UnusableDirectoryError, make_record_dir
from ctx_tracer.cli.errors import CommandError
from ctx_tracer.cli.html import html_of
from ctx_tracer.cli.read import show_json
from ctx_tracer.cli.render import console, plain, show_whole_report
from ctx_tracer.daemon.bundle import BUNDLE_SUFFIX, write_bundle
from ctx_tracer.daemon.offline import report_of_records
from ctx_tracer.record.reader import RecordError


def analyze(paths: Sequence[Path], run: str | None, html: Path | None, *, as_json: bool) -> None:
    """What records tell, of one node or of all."""
    try:
        report = report_of_records(paths, run)
    except RecordError as error:
        raise CommandError(
            str(error), "give records, bundles or directories of them; --run chooses one run", 2
        ) from error
    except OSError as error:
        raise CommandError(
            f"cannot read {error.filename}: {error.strerror}", "give records, bundles or directories", 2
        ) from error
    if html is not None:
        try:
            html.write_text(html_of(report), encoding="utf-8")
        except OSError as error:
            raise CommandError(
                f"cannot write {html}: {error.strerror}", "name a file in a folder that is there", 2
            ) from error
    if as_json:
        show_json(report)
    elif html is None:
        show_whole_report(report, console())
    else:
        console().print(plain(report["sentence"]))


def bundle(source: str, target: Path | None) -> None:
    """Pack the records of a run on this node."""
    directory = Path(source)
    try:
        if not directory.is_dir():
            directory = make_record_dir(source, None)
        target = target if target is not None else Path(f"{directory.name}{BUNDLE_SUFFIX}")
        count = write_bundle(directory, target)
    except (RecordError, UnusableDirectoryError) as error:
        raise CommandError(str(error), "give a directory of records, or a run of this node", 2) from error
    except OSError as error:
        raise CommandError(
            f"cannot pack {directory}: {error.strerror}", "name a file in a folder that is there", 2
        ) from error
    console().print(f"{plain(target)}: {count} file{'s' if count != 1 else ''}")
