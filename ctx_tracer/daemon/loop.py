"""The daemon itself: finds records, follows their processes, tells findings, hands spans on. One `tick` at a time."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ctx_tracer import known_issues
from ctx_tracer.daemon.absent import notes_in
from ctx_tracer.daemon.exits import Ended, ExitWatch, exit_of
from ctx_tracer.daemon.observed import Observed
from ctx_tracer.daemon.watch import Watch
from ctx_tracer.record.layout import SUFFIX
from ctx_tracer.record.reader import RecordError, RecordReader
from ctx_tracer.verdict.exits import ProcessEnd, exit_findings
from ctx_tracer.verdict.merge import severity
from ctx_tracer.verdict.ranks import Ranks
from ctx_tracer.verdict.settle import explain
from ctx_tracer.verdict.speech import Speech
from ctx_tracer.verdict.suppress import Suppressions

if TYPE_CHECKING:
    from ctx_tracer.daemon.announce import Announcer
    from ctx_tracer.daemon.export import Exporter
    from ctx_tracer.model import Finding

PROGRESS_EVERY_NS = 5_000_000_000
TICK_S = 0.2  # a finding is told within this time; looking costs microseconds
_PATIENCE = 25  # looks at a file that is no record yet: five seconds
# A hang, a lost rank, a replay that failed, and gradients that stay off: the job does nothing useful after these.
_HOPELESS = ("CT113", "CT114", "CT301", "CT302")
_LARGEST_ERROR = 64 << 10  # bytes of a traceback that a process left


class Daemon:
    """Looks after the records of one directory that were begun at or after `since_ns`."""

    def __init__(
        self,
        directory: Path,
        watch: ExitWatch,
        announcer: Announcer,
        exporter: Exporter | None,
        since_ns: int,
        suppressions: Suppressions,
        stall_after_s: float,
    ) -> None:
        """Look after `directory`, which `watch` has been made for; it is started here.

        Ranks that make no progress for `stall_after_s` seconds are looked at.
        """
        self._directory = directory
        self._announcer = announcer
        self._exporter = exporter
        self._since_ns = since_ns
        self._watch = watch
        watch.start()
        self._observed: dict[str, Observed] = {}  # by file name
        self._unreadable: dict[str, int] = {}  # file name -> looks
        self._expected: set[int] = set()
        self._next_progress_ns = 0
        self._over: list[ProcessEnd] = []  # in the order of their ends
        self.ranks = Ranks()
        self._stalls = Watch(stall_after_s)
        self.hangs: list[Finding] = []  # the newest is how it stands
        self.hopeless = False  # a finding was told after which the job cannot go on rightly
        self.known_issues = known_issues.load()
        self.suppressions = suppressions
        for entry in suppressions.expired:
            announcer.say(f"the {entry} expired on {entry.expires} and no longer holds ({entry.reason})")
        self._why_unreadable: dict[str, str] = {}
        self._not_installed_in: list[str] = []
        self.copies: list[Path] = []  # of the records of processes that failed

    @property
    def processes(self) -> list[Observed]:
        """Every process with a record, in the order of their ranks."""
        return sorted(self._observed.values(), key=lambda o: (o.reader.identity.rank, o.reader.identity.started_ns))

    @property
    def alive(self) -> list[Observed]:
        """Those that have not ended."""
        return [observed for observed in self.processes if observed.ended is None]

    @property
    def watched(self) -> list[Observed]:
        """Those of them that the tracer has not been taken out of."""
        return [observed for observed in self.alive if not observed.reader.progress().clean_end]

    @property
    def problems(self) -> list[str]:
        """Why something was not observed, each a sentence."""
        return [*self._not_installed_in, *self._why_unreadable.values()]

    def wait_for(self, pid: int) -> None:
        """Count `pid` as one of ours, whether or not it has a record."""
        self._expected.add(pid)
        self._watch.watch(pid)

    @property
    def expected_gone(self) -> bool:
        """Whether every process given to `wait_for` has ended."""
        return self._expected <= self._watch.ended().keys()

    def tick(self, now_ns: int, exits: Mapping[int, int], passed_on: set[str]) -> None:
        """One look at everything.

        `exits` are the wait statuses of our own children that ended, `passed_on` the signals that the job was sent.
        """
        self._discover()
        # Ends are looked up before the records are read, so that what a process wrote last is in what was read last.
        ended = self._watch.ended()
        losses = self.export_losses()
        for observed in self.alive:
            observed.read(losses, partial(self._announce, observed))
            self._say_notices(observed)
            if observed.spans is not None:
                observed.spans.hurry(now_ns)
        gone = [observed for observed in self.alive if observed.pid in ended]
        self._tell_of_ranks(now_ns)
        for observed in sorted(gone, key=lambda o: ended[o.pid].time_ns):
            self._end(observed, ended[observed.pid], exits, passed_on)
        if gone:
            self._tell_of_ranks(now_ns)
        hang = self._stalls.tick(self.processes, now_ns)
        self._stalls.tell(now_ns, self.processes)
        if hang is not None and self._counts(hang):
            self.hangs.append(hang)
            self._tell(hang, now_ns)
        if self._exporter is not None:
            self._tell_progress(self._exporter, now_ns)

    def export_losses(self) -> dict[str, int]:
        """Spans that did not arrive, by reason."""
        return self._exporter.dropped() if self._exporter else {}

    def notes(self) -> list[str]:
        """What processes without a record said about themselves."""
        return notes_in(self._directory, self._since_ns)

    def _discover(self) -> None:
        try:
            names = sorted(path.name for path in self._directory.iterdir())
        except OSError:
            return
        for name in names:
            if name.endswith(SUFFIX) and name not in self._observed and self._unreadable.get(name, 0) < _PATIENCE:
                self._open(name)
            elif name.endswith(".error") and name not in self._unreadable:
                self._unreadable[name] = _PATIENCE
                self._not_installed(self._directory / name)

    def _open(self, name: str) -> None:
        path = self._directory / name
        try:
            reader = RecordReader(str(path))
        except (OSError, RecordError) as error:
            self._unreadable[name] = self._unreadable.get(name, 0) + 1
            self._why_unreadable[name] = f"a record cannot be read: {error}"
            return
        self._why_unreadable.pop(name, None)
        if reader.identity.started_ns < self._since_ns:
            reader.close()
            self._unreadable[name] = _PATIENCE  # an earlier run's
            return
        speech = Speech(reader.definitions) if self._exporter is not None else None
        speaker = self.ranks.speaker(reader.identity, reader.definitions, *([speech] if speech is not None else []))
        observed = Observed(path, reader, None, speaker, speech, self._counts)
        if self._exporter is not None:
            self._export(observed, self._exporter)
        self._observed[name] = observed
        self._watch.watch(observed.pid)

    def _export(self, observed: Observed, exporter: Exporter) -> None:
        from ctx_tracer.daemon.logs import Logs
        from ctx_tracer.daemon.progress import Metrics
        from ctx_tracer.daemon.said import Said
        from ctx_tracer.daemon.spans import SpanBuilder
        from ctx_tracer.daemon.telemetry import Telemetry

        reader, speech, speaker = observed.reader, observed.speech, observed.speaker
        telemetry = Telemetry(reader.identity, exporter)
        said = Said(speech, speaker, telemetry.emit) if speech is not None and speaker is not None else None
        observed.spans = SpanBuilder(
            telemetry,
            reader.definitions,
            lambda finding: self._explained(observed, finding),
            reader.identity.started_ns,
            said,
        )
        observed.metrics = Metrics(observed)
        observed.logs = Logs(reader.identity, telemetry, exporter.log)

    def _tell_progress(self, exporter: Exporter, now_ns: int) -> None:
        """How the processes are doing, forks left out; of one that has ended, its `process exit` says it."""
        if now_ns < self._next_progress_ns:
            return
        ranks = [observed for observed in self.watched if observed.reader.identity.forked_from is None]
        metrics = [observed.metrics for observed in ranks if observed.metrics is not None]
        if metrics:
            self._next_progress_ns = now_ns + PROGRESS_EVERY_NS
            exporter.progress([resource for one in metrics for resource in one.read()])

    def _not_installed(self, path: Path) -> None:
        try:
            text = path.read_bytes()[-_LARGEST_ERROR:].decode(errors="replace").strip()
        except OSError:
            return
        reason = text.splitlines()[-1] if text else "unknown"
        problem = f"process {path.name.removeprefix('pid-').removesuffix('.error')} is not observed: {reason}"
        self._not_installed_in.append(problem)
        self._announcer.say(f"{problem}; the whole error is in {path}")

    def _end(self, observed: Observed, ended: Ended, exits: Mapping[int, int], passed_on: set[str]) -> None:
        if ended.exit is None and observed.pid in exits:
            ended = replace(ended, exit=exit_of(exits[observed.pid]))
        observed.read(self.export_losses(), partial(self._announce, observed), last=True)
        self._say_notices(observed)
        observed.ended = ended
        observed.stopped = ended.exit is not None and ended.exit.signal in passed_on
        end = observed.end()
        if observed.speaker is not None:
            self.ranks.ended(observed.speaker, end.closed)
        findings = [finding for finding in exit_findings(end, self._over) if self._counts(finding)]
        self._over.append(end)
        for finding in findings:
            self._announce(observed, finding)
        if observed.spans is not None:
            step = end.progress.step if end.progress else 0
            if observed.spans.said is not None:
                observed.spans.said.ended(ended.time_ns, in_good_order=end.closed)
            observed.spans.ended(ended.exit, ended.time_ns, findings, step)
        log_dir = self._watch.log_dir(observed.pid)
        if ended.exit is not None and ended.exit.failed and log_dir is not None:
            self._keep(observed, log_dir)

    def _keep(self, observed: Observed, directory: Path) -> None:
        target = directory / observed.path.name
        try:
            shutil.copyfile(observed.path, target)
        except OSError as error:
            self._announcer.say(f"cannot copy {observed.path} to {directory}: {error.strerror}")
            return
        self.copies.append(target)

    def _tell_of_ranks(self, now_ns: int) -> None:
        """What differs between ranks, as soon as it does; its spans are those of the first rank it names."""
        for finding in self.ranks.news():
            if self._counts(finding):
                self._tell(finding, now_ns)

    def _tell(self, finding: Finding, now_ns: int) -> None:
        observed = next(o for o in self.processes if o.pid in finding.processes)
        self._announce(observed, finding)
        if observed.spans is not None:
            observed.spans.told(now_ns, finding)

    def _say_notices(self, observed: Observed) -> None:
        while observed.notices:
            self._announcer.say(observed.notices.pop(0))

    def _announce(self, observed: Observed, finding: Finding) -> None:
        self.hopeless = self.hopeless or (finding.rule in _HOPELESS and severity(finding) == "error")
        self._announcer.finding(self._explained(observed, finding))

    def _counts(self, finding: Finding) -> bool:
        return self.suppressions.of(finding) is None

    def _explained(self, observed: Observed, finding: Finding) -> Finding:
        return explain(finding, self.known_issues, observed.reader.identity.paddle_version)
