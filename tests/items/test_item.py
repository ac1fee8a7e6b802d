"""One item: frozen, and listed while it lives."""

from __future__ import annotations

import dataclasses
import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest

from amplifier_context_core.items import ContextItem
from amplifier_context_core.items.item import living_items


def test_an_item_never_changes() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        ContextItem("a").content = "b"  # type: ignore[misc]


def test_an_item_without_content_is_not_read() -> None:
    with pytest.raises(KeyError, match="content"):
        ContextItem.from_dict({"id": "x"})


def test_living_items_are_listed_while_another_thread_makes_items() -> None:
    kept = [ContextItem(number) for number in range(1_000)]
    is_over = Event()

    def make() -> None:
        while not is_over.is_set():
            _ = [ContextItem("short-lived") for _ in range(50)]

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(1) as pool:
            making = pool.submit(make)
            try:
                for _ in range(500):
                    assert len(living_items()) >= len(kept)
            finally:
                is_over.set()
            making.result()
    finally:
        sys.setswitchinterval(interval)
