"""An iterator for several threads: each gets every item in order, one makes at a time, few wait, and nobody hangs."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from tests.patience import LONG
from timelapse.kernels.supply import WAITING, Supply


def _taken(supply: Supply[int], takers: int, pauses: tuple[float, ...] = ()) -> list[list[int]]:
    """What each thread gets. `pauses`: how long each works on an item."""
    found: list[list[int]] = [[] for _ in range(takers)]

    def take(number: int) -> None:
        for item in supply.of(number):
            found[number].append(item)
            if pauses:
                time.sleep(pauses[number])

    threads = [threading.Thread(target=take, args=(n,), daemon=True) for n in range(takers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LONG)
    assert not any(thread.is_alive() for thread in threads)
    return found


@pytest.mark.parametrize("takers", [1, 2, 5])
def test_every_thread_gets_all_items_in_order(takers: int) -> None:
    supply = Supply(iter(range(500)), takers)
    assert _taken(supply, takers) == [list(range(500))] * takers
    supply.check()
    assert list(supply.of(0)) == []


def test_one_makes_at_a_time_and_few_wait() -> None:
    """Also where one thread is much slower than the other, which then makes nearly all of them."""
    busy, made = threading.Lock(), 0
    makers: set[int] = set()

    def make() -> Iterator[int]:
        nonlocal made
        for n in range(40):
            assert busy.acquire(blocking=False)
            time.sleep(0.0005)
            made += 1
            makers.add(threading.get_ident())
            busy.release()
            yield n

    supply = Supply(make(), 2)
    ahead = []

    def slow() -> None:
        for item in supply.of(0):
            ahead.append(made - item)
            time.sleep(0.003)

    thread = threading.Thread(target=slow, daemon=True)
    thread.start()
    assert list(supply.of(1)) == list(range(40))
    thread.join(LONG)
    supply.check()
    assert threading.get_ident() in makers
    assert max(ahead) <= WAITING + 1


@pytest.mark.parametrize("error", [OSError("gone"), KeyboardInterrupt()])
def test_an_error_ends_it_for_all_after_the_items_before(error: BaseException) -> None:
    def make() -> Iterator[int]:
        yield from range(7)
        raise error

    supply = Supply(make(), 3)
    assert _taken(supply, 3, (0.0, 0.001, 0.002)) == [list(range(7))] * 3
    with pytest.raises(type(error)) as caught:
        supply.check()
    assert caught.value is error


def test_closing_ends_it_early() -> None:
    supply = Supply(iter(range(10**9)), 2)
    taken: list[int] = []

    def other() -> None:
        taken.extend(supply.of(1))

    thread = threading.Thread(target=other, daemon=True)
    thread.start()
    mine = supply.of(0)
    assert [next(mine) for _ in range(10)] == list(range(10))
    supply.close()
    assert len(list(mine)) <= WAITING
    thread.join(LONG)
    assert not thread.is_alive()
    assert taken == list(range(len(taken)))
    supply.check()
