"""Writes a record as fast as it can, in the manner of its first argument. tests/integration/test_record.py reads it.

It prints the path of its record, then a line of JSON about what it did, if it lives that long.
"""

import contextlib
import json
import mmap
import os
import signal
import sys
import threading
import time
from pathlib import Path

from ctx_tracer.model import Finding, Identity, Region
from ctx_tracer.record import layout
from ctx_tracer.record.writer import RecordWriter

STATES = ("capturing", "captured", "replaying", "consuming", "done")


def new_writer(directory: str, size: int = layout.MIN_SIZE) -> RecordWriter:
    identity = Identity("run", 0, 0, 1, os.getpid(), os.getppid(), "host", time.time_ns(), "3.3.1", "3", "0")
    writer = RecordWriter.create(directory, identity, size)
    print(writer.path, flush=True)
    return writer


def operate(writer: RecordWriter, number: int) -> None:
    """The operation of that number writes the event of that number, and its content follows from it."""
    if number % 7 == 0:
        writer.detail("detail", {"number": number, "fill": ["x" * (number % 3000)] * (number % 5)})
    elif number % 10007 == 0:
        writer.finding(Finding("CT105", region=Region(f"layers.{number}"), first_step=number))
    elif number % 11 == 0:
        writer.step(number, 1, 2, 3, 4)
    else:
        writer.region(STATES[number % 5], number // 5, 1, 2, number, 0, 0, number % 100)


def until_killed(directory: str) -> None:
    """Operations while the test lives; how many returned is in the file `done`, which outlives a kill."""
    with Path(directory, "done").open("w+b") as file:
        file.truncate(8)
        done = memoryview(mmap.mmap(file.fileno(), 8)).cast("Q")
    writer = new_writer(directory)
    parent = os.getppid()
    number = 0
    while number % 1000 or os.getppid() == parent:
        number += 1
        operate(writer, number)
        done[0] = number


def count(directory: str, total: str) -> None:
    """So many operations and a clean end."""
    writer = new_writer(directory)
    for number in range(1, int(total) + 1):
        operate(writer, number)
    writer.close()


def fork(directory: str) -> None:
    """A child forked in the middle writes into a record of its own, and nothing into its parent's."""
    writer = new_writer(directory)
    writer.region("capturing", 1, 0, 0, 0, 0, 0, 0)
    child = os.fork()
    if child == 0:
        for number in range(100):
            operate(writer, number)
        writer.close()
        new_writer(directory).region("capturing", 2, 0, 0, 0, 0, 0, 0)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    writer.region("captured", 1, 0, 0, 0, 0, 0, 0)
    writer.close()


class TooLateError(Exception):
    """What a signal handler of the user's raises, as some do to end a step that takes too long."""


def signals(directory: str, raising: str) -> None:
    """A timer fires into the writer thousands of times; its handler writes too, and raises if asked to."""
    writer = new_writer(directory, layout.DEFAULT_SIZE)
    calls = [0, 0]

    def handler(*_) -> None:
        calls[1] += 1
        writer.region("done", 2, 0, 0, 0, 0, 0, 0)
        if raising == "yes":
            raise TooLateError

    def write_until(fired: int) -> None:
        # A function of its own: Python 3.13 misses the `with` around a loop that a signal handler raises into.
        signal.setitimer(signal.ITIMER_REAL, 0.00005 + fired % 100 * 1e-6)
        while calls[1] == fired:
            writer.region("done", 1, 0, 0, 0, 0, 0, 0)
            calls[0] += 1

    signal.signal(signal.SIGALRM, handler)
    for fired in range(3000):
        with contextlib.suppress(TooLateError):
            write_until(fired)
    print(json.dumps(calls))
    writer.finding(Finding("CT105"))
    writer.close()


def threads(directory: str) -> None:
    """Four threads write at once, and are switched as often as Python can."""
    writer = new_writer(directory, layout.DEFAULT_SIZE)
    sys.setswitchinterval(1e-6)

    def work(name: int) -> None:
        for number in range(5000):
            writer.region("done", name, 0, 0, number, 0, 0, 0)

    running = [threading.Thread(target=work, args=(name,)) for name in range(4)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    writer.close()


def full_disk(directory: str) -> None:
    """A record that fits, on a disk that is then filled by others; and one that does not."""
    writer = new_writer(directory, 4 << 20)
    with contextlib.suppress(OSError), Path(directory, "others").open("wb", buffering=0) as others:
        while True:
            others.write(bytes(4096))
    for number in range(1, 200_000):
        operate(writer, number)
    writer.close()
    refuse(directory)


def refuse(directory: str) -> None:
    """A record that cannot be; what the error was."""
    before = sorted(Path(directory).iterdir())
    try:
        new_writer(directory, layout.DEFAULT_SIZE)
    except OSError as error:
        print(json.dumps([type(error).__name__, error.errno, sorted(Path(directory).iterdir()) == before]))


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
