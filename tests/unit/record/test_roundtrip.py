"""What is written is read, in another mapping of the file, live or afterwards."""

import os
import stat
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ctx_tracer.model import Facts, Finding, Identity, Region
from ctx_tracer.record import layout
from ctx_tracer.record.layout import CollectiveEvent, DetailEvent, FindingEvent, LaneState, RegionEvent, StepEvent
from ctx_tracer.record.reader import RecordReader
from ctx_tracer.record.writer import RecordWriter


@dataclass
class Account:
    """Plays operations on a writer and keeps what a reader has to see, for as long as nothing overflows."""

    writer: RecordWriter
    events: list = field(default_factory=list)
    definitions: dict = field(default_factory=dict)
    findings: dict = field(default_factory=dict)
    counters: dict = field(default_factory=lambda: dict.fromkeys(layout.COUNTERS, 0))
    progress: tuple[int, int, int] = (0, 0, 0)
    stack: list = field(default_factory=list)
    lanes: dict = field(default_factory=dict)  # by row

    def play(self, operation: tuple) -> None:
        name, *arguments = operation
        getattr(self, name)(*arguments)

    def _event(self, kind: type, *fields) -> None:
        self.events.append(kind(len(self.events) + 1, 0, *fields))

    def region(self, *fields) -> None:
        self.writer.region(*fields)
        self._event(RegionEvent, *fields)
        state, token, path = fields[:3]
        at = next((i for i, open_one in enumerate(self.stack) if open_one[1] == token), None)
        if state == "consuming":
            if at is not None:
                self.stack[at] = (state, token, path)
            return
        if at is not None:
            del self.stack[at]
        if state in ("capturing", "replaying"):
            if len(self.stack) == layout.ACTIVITY_DEPTH:
                self.counters["activity_too_deep"] += 1
            else:
                self.stack.append((state, token, path))

    def step(self, *fields) -> None:
        self.writer.step(*fields)
        self._event(StepEvent, *fields)

    def collective(self, row, state, step, now, fields) -> None:
        self.writer.collective(row, state, step, now, fields)
        position, _, numel, _, token, lane, call = fields
        if state == layout.ENTERED:
            self._event(CollectiveEvent, lane, call, position, numel, token, step)
            self.counters["collectives"] += 1
        name = layout.CALL_STATES[state]
        before = self.lanes.get(row)
        if state != layout.ENTERED and before is not None and before.position == position:
            self.lanes[row] = replace(before, state=name, changed_ns=now)  # only what becomes of the call
            return
        self.lanes[row] = LaneState(name, *fields, changed_ns=now)

    def detail(self, kind, data) -> None:
        self.writer.detail(kind, data)
        self._event(DetailEvent, kind, data)

    def define(self, kind, data) -> None:
        number = self.writer.define(kind, data)
        assert number == len(self.definitions) + 1
        self.definitions[number] = (kind, data)

    def finding(self, finding) -> None:
        known = self.findings.get(finding.key)
        assert self.writer.finding(finding) == (known is None)
        if known is None:
            self._event(FindingEvent, len(self.findings), finding)
            last = finding.last_step if finding.last_step is not None else finding.first_step
            self.findings[finding.key] = replace(finding, last_step=last)
        else:
            last = finding.last_step if finding.last_step is not None else finding.first_step
            self.findings[finding.key] = replace(
                known, count=known.count + finding.count, last_step=known.last_step if last is None else last
            )

    def add(self, counter, n) -> None:
        self.writer.add(counter, n)
        self.counters[counter] += n

    def set_progress(self, *fields) -> None:
        self.writer.set_progress(*fields)
        self.progress = fields

    def check(self, reader: RecordReader, events: list) -> None:
        """Everything the reader gives, with the events it has polled so far, is what was played."""
        assert [replace(event, time_ns=0) for event in events] == self.events
        assert {number: (d.kind, d.data) for number, d in reader.definitions().items()} == self.definitions
        assert reader.findings() == list(self.findings.values())
        assert reader.counters() == self.counters
        progress = reader.progress()
        assert (progress.step, progress.micro_batch, progress.phase) == self.progress
        assert [(a.state, a.token, a.path) for a in progress.activities] == self.stack
        assert reader.lanes() == [lane for _, lane in sorted(self.lanes.items())]
        assert reader.lost == 0


int64 = st.integers(-(2**63), 2**63 - 1)
int32 = st.integers(-(2**31), 2**31 - 1)
uint32 = st.integers(0, 2**32 - 1)
# Text that a record keeps as it is: no lone surrogates, not too long.
words = st.text(st.characters(exclude_categories=("Cs",)), max_size=30)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False) | words,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(words, inner, max_size=4),
    max_leaves=10,
)
data = st.dictionaries(words, values, max_size=4)
facts = st.builds(
    Facts,
    name=st.none() | words,
    shape=st.none() | st.tuples(int64, int64),
    placements=st.none() | st.just(()) | st.just(("Shard(1)",)),
    initialized=st.none() | st.booleans(),
).map(Facts.to_dict)
findings = st.builds(
    Finding,
    rule=st.sampled_from(["CT101", "CT105"]),
    ranks=st.just((3,)),
    region=st.none() | st.builds(Region, name=st.sampled_from(["layers.0", "layers.1"]), ordinal=st.integers(0, 3)),
    slot=st.none() | st.integers(0, 2),
    first_step=st.none() | st.integers(-1, 2**40),
    last_step=st.none() | st.integers(0, 2**40),
    count=st.integers(1, 5),
    captured=st.none() | facts,
    served=st.none() | facts,
    differs=st.just(()) | st.just(("placements",)),
    message=words,
    detail=data,
)
operations = st.one_of(
    st.tuples(
        st.just("region"),
        st.sampled_from(layout.STATES),
        st.integers(0, 20),  # tokens: few, so that states of one region follow each other
        uint32,
        uint32,
        int64,
        int32,
        int32,
        int32,
        uint32,
    ),
    st.tuples(st.just("step"), int64, int64, int64, int64, int64),
    st.tuples(st.just("detail"), words, data),
    st.tuples(st.just("define"), words, data),
    st.tuples(st.just("finding"), findings),
    st.tuples(st.just("add"), st.sampled_from(layout.COUNTERS), st.integers(0, 2**40)),
    st.tuples(
        st.just("collective"),
        st.integers(0, layout.MAX_LANES - 1),
        st.integers(0, len(layout.CALL_STATES) - 1),
        int64,
        st.integers(0, 2**62),
        st.tuples(st.integers(1, 3), *[int64] * 4, uint32, uint32),
    ),
    st.tuples(st.just("set_progress"), int64, int64, int64),
)


@settings(max_examples=60, deadline=None)
@given(sequence=st.lists(operations | st.just(("poll",)), max_size=80))
def test_any_sequence_of_operations_reads_back_equal(sequence, new_writer, identity):
    with TemporaryDirectory() as directory:
        account = Account(new_writer(Path(directory)))
        live = RecordReader(account.writer.path)
        events = []
        for operation in sequence:
            if operation == ("poll",):
                events += live.poll()
            else:
                account.play(operation)
        events += live.poll()
        account.check(live, events)
        assert not live.progress().clean_end
        account.writer.close()
        late = RecordReader(account.writer.path)
        account.check(late, late.poll())
        assert late.progress().clean_end
        assert late.identity == live.identity == identity
        late.close()
        live.close()


def test_the_file_is_private_whole_and_named_after_its_process(tmp_path, identity):
    writer = RecordWriter.create(str(tmp_path), identity)
    found = Path(writer.path)
    assert found == tmp_path / f"rank-3.pid-{os.getpid()}.ctxrec"
    status = found.stat()
    assert stat.S_IMODE(status.st_mode) == 0o600
    assert status.st_size == layout.DEFAULT_SIZE
    assert status.st_blocks * 512 >= layout.DEFAULT_SIZE  # no hole that could be a SIGBUS later


def test_a_second_record_of_a_process_takes_the_next_name(tmp_path, new_writer):
    first, second = new_writer(tmp_path), new_writer(tmp_path)
    second.set_progress(5, 0)
    assert Path(second.path).name == f"rank-3.pid-{os.getpid()}.2.ctxrec"
    assert RecordReader(first.path).progress().step == 0
    assert RecordReader(second.path).progress().step == 5


def test_a_link_in_place_of_the_record_is_not_followed(tmp_path, new_writer):
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    (tmp_path / f"rank-3.pid-{os.getpid()}.ctxrec").symlink_to(victim)
    assert Path(new_writer(tmp_path).path).name.endswith(".2.ctxrec")
    assert victim.read_bytes() == b"precious"


@pytest.mark.parametrize("size", [0, layout.MIN_SIZE - 1])
def test_a_file_that_cannot_be_is_an_oserror_and_leaves_nothing(tmp_path, size, new_writer):
    with pytest.raises(OSError, match="at least"):
        new_writer(tmp_path, size)
    with pytest.raises(FileNotFoundError):
        new_writer(tmp_path / "absent")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("size", [layout.MIN_SIZE, layout.MIN_SIZE + 1, layout.DEFAULT_SIZE, 5_000_001])
def test_the_areas_of_a_file_lie_side_by_side(size):
    parts = layout.areas(size)
    places = [parts.definitions, parts.findings, parts.ring]
    assert places[0][0] == layout.LANES_OFFSET + layout.LANES_SIZE
    assert [start + span for start, span in places] == [places[1][0], places[2][0], parts.size]
    assert parts.size % layout.PAGE == 0
    assert size <= parts.size < size + layout.PAGE
    assert all(start % 8 == 0 and span > 0 for start, span in places)


def test_the_fixed_parts_of_the_layout_do_not_overlap():
    assert layout.HEADER.size % 8 == 0
    assert layout.ENTRY.size == layout.ENTRY_BODY.size + 8 == 32
    assert layout.REGION.size == layout.ENTRY_BODY.size + layout.REGION_PAYLOAD.size
    page_end = layout.PROGRESS_OFFSET + layout.PROGRESS_SIZE
    block = layout.ACTIVITY_HEAD.size + layout.ACTIVITY_DEPTH * layout.ACTIVITY.size
    counters_end = layout.PROGRESS_OFFSET + 8 * (layout.COUNTERS_WORD + layout.COUNTERS_CAPACITY)
    first, second = layout.ACTIVITY_OFFSETS
    assert layout.ACTIVITY_GENERATION < layout.COUNTERS_WORD
    assert len(set(layout.COUNTERS)) == len(layout.COUNTERS) <= layout.COUNTERS_CAPACITY
    assert counters_end <= first < first + block <= second < second + block <= page_end


def test_every_method_after_close_does_nothing(tmp_path, new_writer, read_all):
    writer = new_writer(tmp_path)
    writer.region("capturing", 1, 0, 0, 0, 0, 0, 0)
    writer.close()
    before = Path(writer.path).read_bytes()
    writer.region("captured", 1, 0, 0, 0, 0, 0, 0)
    writer.step(1, 0, 0, 0, 0)
    writer.detail("kind", {})
    writer.add("packs")
    writer.set_progress(9, 9, 9)
    assert writer.define("kind", {}) == 0
    writer.finding(Finding("CT105"))
    writer.finding(Finding("CT105"))
    writer.close()
    assert Path(writer.path).read_bytes() == before
    assert len(read_all(writer.path)[0]) == 1


def test_an_unknown_counter_or_state_is_a_keyerror(tmp_path, new_writer):
    writer = new_writer(tmp_path)
    with pytest.raises(KeyError):
        writer.add("no such counter")
    with pytest.raises(KeyError):
        writer.region("no such state", 1, 0, 0, 0, 0, 0, 0)


def test_an_event_names_the_finding_it_announces_and_later_ones_move_its_words(tmp_path, new_writer):
    writer = new_writer(tmp_path)
    reader = RecordReader(writer.path)
    for step in range(3):
        writer.finding(Finding("CT105", region=Region("layers.3"), first_step=step, last_step=step))
    writer.finding(Finding("CT101", region=Region("layers.3"), first_step=7))
    first, second = reader.poll()
    assert (first.index, first.finding.rule, first.finding.count) == (0, "CT105", 1)
    assert (second.index, second.finding.rule) == (1, "CT101")
    assert [(f.rule, f.count, f.first_step, f.last_step) for f in reader.findings()] == [
        ("CT105", 3, 0, 2),
        ("CT101", 1, 7, 7),
    ]


def test_a_region_that_never_ended_is_replaced_when_its_token_opens_again(tmp_path, new_writer):
    writer = new_writer(tmp_path)
    writer.region("replaying", 5, 1, 0, 0, 0, 0, 0)
    writer.region("capturing", 6, 2, 0, 0, 0, 0, 0)
    writer.region("replaying", 5, 1, 0, 0, 0, 0, 0)
    activities = RecordReader(writer.path).progress().activities
    assert [(a.state, a.token) for a in activities] == [("capturing", 6), ("replaying", 5)]


def test_every_field_of_a_finding_and_of_an_identity_is_kept(tmp_path):
    region = Region("layers.3", ordinal=2, source="train.py:42", mode="ctx")
    finding = Finding(
        "CT105",
        (1, 3),
        (10, 11),
        region,
        4,
        {"name": "w"},
        5,
        6,
        7,
        8,
        9,
        {"shape": [1]},
        {"shape": [2]},
        {},
        ("shape",),
    )
    rest = {"message": "m", "remedy": "r", "severity": "info", "known_issue": {"id": "74075"}, "detail": {"a": 1}}
    finding = replace(finding, **rest)
    assert all(getattr(finding, field.name) != field.default for field in fields(Finding))
    identity = Identity("r", 1, 2, 3, 4, 5, "h", 6, "3.3.1", "3.11", "0.1", ("python", "a b"), 7, {"mp": 1}, "native")
    assert all(getattr(identity, field.name) != field.default for field in fields(Identity))
    writer = RecordWriter.create(str(tmp_path), identity)
    writer.finding(finding)
    reader = RecordReader(writer.path)
    assert reader.findings() == [finding]
    assert reader.identity == identity


def test_an_identity_that_does_not_fit_is_cut(tmp_path, identity):
    long = replace(identity, command=("x" * 5000,) * 50, host="\U0001f600" * 5000, run="\ud800" * 5000)
    found = RecordReader(RecordWriter.create(str(tmp_path), long).path).identity
    assert (found.rank, found.pid, found.axes) == (identity.rank, identity.pid, identity.axes)
    assert found.host.startswith("\U0001f600")
    assert found.run.startswith("\\ud800")
