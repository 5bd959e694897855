"""Writes a record as the probe would, without Paddle, so that what is around it can be tested fast.

Usage: fake_rank.py [action=value ...], carried out in order:
steps=N        N healthy steps of one hook-mode region, recorded in full
sleep=S        seconds to let pass after each further step
finding=CT105  a finding in the region of the coming step (`again=N`: how often it occurs)
open=replay    enter a replay and stay in it;  hang=CT105  the same, with a finding
signal=SEGV    die by it;  exit=3  exit with it;  hold=FILE  wait until FILE exists
clean          close the record
"""

import os
import signal
import sys
import time
from pathlib import Path

from ctx_tracer.attach.activate import attempt_of
from ctx_tracer.model import Facts, Finding, Identity, Region
from ctx_tracer.record.writer import RecordWriter

RANK = int(os.environ.get("PADDLE_TRAINER_ID", "0"))
DIRECTORY = Path(os.environ["CTX_TRACER_RECORD_DIR"])
NAME = os.environ.get("FAKE_REGION", "layers.3")


class Rank:
    def __init__(self):
        self.identity = Identity(
            run=os.environ["CTX_TRACER_RUN_ID"],
            attempt=attempt_of(DIRECTORY, RANK, os.environ),
            rank=RANK,
            world_size=int(os.environ.get("PADDLE_TRAINERS_NUM", "1")),
            pid=os.getpid(),
            parent_pid=os.getppid(),
            host="node-a",
            started_ns=time.time_ns(),
            paddle_version=os.environ.get("FAKE_PADDLE", "3.3.1"),
            python_version="3.11.7",
            tracer_version="0.1.0",
            command=tuple(sys.argv),
        )
        self.record = RecordWriter.create(str(DIRECTORY), self.identity)
        self.path = self.record.define(
            "path", {"name": NAME, "qualname": "Block.forward", "source": "train.py:42", "mode": "hook"}
        )
        facts = Facts(name="weight", shape=(2, 4), dtype="float32", placements=("Shard(1)",), has_grad=True)
        self.facts = facts.to_dict()
        self.signature = self.record.define(
            "signature", {"path": self.path, "slots": [{**self.facts, "role": "saved", "layer": "linear"}] * 2}
        )
        self.step = self.token = 0
        self.pause = 0.0
        self.again = 1

    def write(self, state):
        self.record.region(state, self.token, self.path, self.signature, self.step, 0, 0, 2)

    def detail(self, which, slots):
        self.record.detail("facts", {"token": self.token, "pass": which, "slots": slots})

    def one_step(self, rule=None):
        self.token += 1
        self.write("capturing")
        self.write("captured")
        self.record.add("regions_captured")
        self.detail("captured", [self.facts, self.facts])
        self.write("replaying")
        if rule is not None:
            for _ in range(self.again):
                self.record.finding(self.finding(rule))
        self.write("consuming")
        self.record.add("regions_replayed")
        self.record.add("slots_compared", 2)
        self.detail("produced", [self.facts, self.facts])
        self.write("done")
        self.record.step(self.step, 1, 1, 2, 1000)
        self.step += 1
        self.record.set_progress(self.step, 0)
        time.sleep(self.pause)

    def finding(self, rule):
        return Finding(
            rule=rule,
            ranks=(RANK,),
            processes=(os.getpid(),),
            region=Region(NAME, 0, "train.py:42", "hook"),
            slot=1,
            tensor={"name": "weight", "layer": "linear", "role": "parameter"},
            first_step=self.step,
            last_step=self.step,
            last_clean_step=self.step - 1 if self.step else None,
            captured=self.facts,
            produced={**self.facts, "placements": []},
            differs=("placements",),
            message="weight lost its placements between capture and replay.",
        )


def steps(rank, value):
    for _ in range(int(value)):
        rank.one_step()


def open_replay(rank, _value):
    rank.token += 1
    for state in ("capturing", "captured", "replaying"):
        rank.write(state)


def hang(rank, rule):
    open_replay(rank, None)
    rank.record.finding(rank.finding(rule))


def hold(_rank, value):
    while not Path(value).exists():
        time.sleep(0.02)


ACTIONS = {
    "steps": steps,
    "sleep": lambda rank, value: setattr(rank, "pause", float(value)),
    "again": lambda rank, value: setattr(rank, "again", int(value)),
    "finding": lambda rank, value: rank.one_step(value),
    "open": open_replay,
    "hang": hang,
    "hold": hold,
    "print": lambda _rank, value: print(value, flush=True),
    "clean": lambda rank, _value: rank.record.close(),
    "signal": lambda _rank, value: os.kill(os.getpid(), getattr(signal, "SIG" + value)),
    "exit": lambda _rank, value: os._exit(int(value)),
}


if __name__ == "__main__":
    this = Rank()
    for argument in sys.argv[1:]:
        action, _, given = argument.partition("=")
        ACTIONS[action](this, given)
