"""Threads beside the one under test."""

import gc
import threading
import time
from collections.abc import Callable
from itertools import pairwise


def longest_wait_beside(work: Callable[[], object]) -> float:
    """Return the largest share, 0 to 1, of the work's processor time between two turns of another thread.

    Garbage is not collected meanwhile: that takes as long as the whole process has objects.
    """
    ended, turns = threading.Event(), list[float]()

    def take_turns() -> None:
        while not ended.is_set():
            turns.append(time.process_time())
            time.sleep(0.0001)
        turns.append(time.process_time())

    other = threading.Thread(target=take_turns)
    gc.disable()
    other.start()
    try:
        work()
    finally:
        gc.enable()
        ended.set()
        other.join()
    return max(later - turn for turn, later in pairwise(turns)) / (turns[-1] - turns[0])
