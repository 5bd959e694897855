"""One at a time, in order, without waiting: for nested calls, threads, and exceptions out of nowhere."""

import sys
import threading

import pytest

from ctx_tracer.record.turn import MAX_LOST, MAX_PENDING, Turn


def make():
    lost = []
    return Turn(lost.append), lost


def test_an_operation_that_comes_while_another_runs_is_run_after_it():
    turn, _ = make()
    seen = []

    def outer():
        seen.append("outer begins")
        turn.take(seen.append, "inner")
        seen.append("outer ends")

    turn.take(outer)
    turn.take(seen.append, "next")
    assert seen == ["outer begins", "outer ends", "inner", "next"]


def test_what_a_full_queue_refuses_is_counted():
    turn, lost = make()
    seen = []

    def outer():
        for number in range(MAX_PENDING + 3):
            turn.take(seen.append, number)

    turn.take(outer)
    assert seen == list(range(MAX_PENDING))
    assert lost == [3]


def test_an_operation_that_raises_gives_the_place_back_and_keeps_the_queue():
    turn, _ = make()
    seen = []

    def outer():
        turn.take(seen.append, "queued")
        raise KeyError

    with pytest.raises(KeyError):
        turn.take(outer)
    assert not turn.holder
    turn.take(seen.append, "own")
    assert seen == ["queued", "own"]


def test_the_end_waits_for_the_holder_and_comes_through_a_full_queue():
    turn, _ = make()
    seen = []

    def last():
        turn.over = True
        seen.append("end")

    def outer():
        for number in range(MAX_PENDING):
            turn.take(seen.append, number)
        turn.end(last)
        turn.take(seen.append, "refused: the queue is full")
        seen.append("outer")

    turn.take(outer)
    turn.take(seen.append, "after the end")
    assert seen == ["outer", *range(MAX_PENDING), "end"]


def test_a_place_whose_holder_is_gone_is_taken_over():
    turn, lost = make()
    seen = []
    turn.holder[0] = object()
    for number in range(MAX_PENDING + MAX_LOST):
        turn.take(seen.append, number)
    assert seen == []
    turn.take(seen.append, "one too many")
    assert seen == list(range(MAX_PENDING))
    assert lost == [MAX_LOST + 1]
    turn.take(seen.append, "own")
    assert seen[-1] == "own"


def test_a_loss_just_after_the_holder_left_is_reported_by_the_one_who_lost():
    turn, lost = make()

    def overflow():
        turn.lost.append(None)

    turn.take(overflow)
    assert lost == [1]
    turn.lost.append(None)
    turn.settle()
    assert lost == [1, 1]


def test_threads_keep_their_order_and_lose_only_what_is_counted():
    turn, lost = make()
    seen = []
    each = 5000

    def work(name):
        for number in range(each):
            turn.take(seen.append, (name, number))

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert len(seen) + sum(lost) == 4 * each
    for name in range(4):
        own = [number for who, number in seen if who == name]
        assert own == sorted(set(own))
    assert not turn.pending
    assert not turn.lost
    assert not turn.holder
