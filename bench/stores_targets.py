"""The rows of the store tables: each figure, its format and its target."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from .report import Part
from .stores_baselines import SIXTEEN
from .targets import Figures, Group, Row, against_smallest, figure, stall_of, text_of, value_of

STALL = "≤ 5 ms"


def append_part(stores: Mapping[str, Figures]) -> Part:
    """Return the table of appending, one column a store."""
    return Part("Appending to a store that keeps what it acknowledged", stores, _append_groups())


def resume_part(store: str, sizes: Mapping[str, Figures]) -> Part:
    """Return the table of resuming from one store, one column a size."""
    return Part(f"Sessions of so many messages, resumed from {store}", sizes, _resume_groups())


NOTES = (
    "Appending: medians over turns; each turn runs every measurement once, next to its baseline. The baseline of "
    "JSONL and SQLite is an insert and a commit per message in one thread, of PostgreSQL an insert per message in "
    "autocommit, of Redis an RPUSH per message; for sixteen, sixteen such tasks. A stall is the delay of a tick of "
    "the loop, whether for one callback or for sixteen ready tasks; the longest callback is what blocks. The stall "
    "of an idle loop is the machine's share of the others, that of the bare loop of sixteen the driver's. All loops "
    "wait with select, whose timers are exact. "
    "Resuming: each time in a process of its own, files in the page cache. Bytes read are counted per system call."
)


def _append_groups() -> list[Group]:
    return [
        Group("One appender, µs a message", _single_rows()),
        Group(f"{SIXTEEN} appenders, one session and its manager", _many_rows("shared")),
        Group(f"{SIXTEEN} appenders, a session each in one store", _many_rows("spread")),
        Group(
            "The event loop without a store",
            [
                Row("longest stall of an idle loop", text_of("{:.1f} ms", "idle_stall")),
                Row("  longest callback", text_of("{:.1f} ms", "idle_callback")),
                Row("longest stall in the bare loop of sixteen", text_of("{:.1f} ms", "bare_stall")),
                Row("  longest callback", text_of("{:.1f} ms", "bare_callback")),
            ],
        ),
    ]


def _single_rows() -> list[Row]:
    return [
        Row("baseline: the bare loop", text_of("{:.0f}", "bare_us")),
        Row("store.append", text_of("{:.0f}", "append_us")),
        Row("  above the baseline", text_of("{:.0f}", "append_above")),
        Row("  above 1.15 × the baseline", text_of("{:.0f}", "append_excess"), _local_excess, "≤ 60 µs (local)", 60),
        Row(
            "  speed, of the baseline's",
            _percent("append_baselines"),
            _share("append_baselines", "least_single"),
            "≥ 40 % (PostgreSQL)",
            minimum=1.0,
        ),
        Row("ContextManager.add_message", text_of("{:.0f}", "add_us")),
        Row("  above the baseline", text_of("{:.0f}", "add_above")),
        Row("  speed, of the baseline's", _percent("add_baselines")),
    ]


def _many_rows(name: str) -> list[Row]:
    rows = [Row("baseline, messages a second", text_of("{:,.0f}", "bare_rate"))] if name == "shared" else []
    due = _share(f"{name}_baselines", "least_spread") if name == "spread" else None
    share = "≥ 70 % (SQL)" if due else ""
    return [
        *rows,
        Row("messages a second", text_of("{:,.0f}", f"{name}_rate")),
        Row("  of the baseline's", _percent(f"{name}_baselines"), due, share, minimum=1.0),
        Row("longest stall (collector's)", stall_of(name)),
        Row("  longest callback", text_of("{:.1f} ms", f"{name}_callback"), value_of(f"{name}_callback"), STALL, 5.0),
    ]


def _resume_groups() -> list[Group]:
    return [
        Group(
            "From the checkpoint to the first view",
            [
                Row("open, resume and first view", _ms("resume"), value_of("resume_ms"), "≤ 50 ms", 50),
                Row("  flat: against the smallest", _ms("resume"), _not_smallest("resume_ms"), "≤ 2×", 2.0),
                Row("  of it until resumed", _ms("open")),
                Row("  of it the view", _ms("view")),
                Row("  own CPU time", _ms("resume_cpu"), value_of("resume_cpu_ms"), "≤ 50 ms", 50),
                Row("  longest stall", text_of("{:.1f} ms", "resume_stall")),
                Row("entries loaded", text_of("{:,.0f}", "loaded")),
            ],
        ),
        Group(
            "A new process, from its start to the first view",
            [
                Row("only checkpoint and tail, by the standard library", _ms("fresh_bare")),
                Row("baseline: only checkpoint and tail, by the store", _ms("fresh_store")),
                Row("first view", _ms("fresh_view"), _above_baseline("fresh_view_ms"), "≤ 4× the baseline", 4.0),
                Row("  own CPU time", _ms("fresh_view_cpu"), _cpu_above_baseline, "≤ 4× the baseline's", 4.0),
                Row(
                    "  with a question added first", _ms("fresh_asked"), _above_baseline("fresh_asked_ms"), "≤ 4×", 4.0
                ),
                Row("memory after the first view", text_of("{:.0f} MB", "fresh_view_mb")),
            ],
        ),
        Group(
            "Then 500 rounds",
            [
                Row("memory of the process", text_of("{:.0f} MB", "memory_mb"), _memory, "< 150 MB", 150),
                Row("  of it before the session", text_of("{:.0f} MB", "process_mb")),
                Row("bytes read by a request", text_of("{:.0f}", "read_request"), value_of("read_request"), "0", 0),
                Row("  by one that compacts", text_of("{:,.0f}", "read_compacting")),
                Row("  by adding a round", text_of("{:,.0f}", "read_adding")),
            ],
        ),
        Group(
            "Without a checkpoint",
            [
                Row("all loaded, to the first view", text_of("{:.1f} s", "rebuild_s")),
                Row("  messages a second", text_of("{:,.0f}", "rebuild_rate")),
                Row("  memory of the process then", text_of("{:,.0f} MB", "rebuild_mb")),
                Row("  longest stall (collector's)", stall_of("rebuild")),
            ],
        ),
        Group(
            "The store",
            [
                Row("on disk", text_of("{:,.0f} MB", "size_mb")),
                Row("filled in batches, µs a message", text_of("{:.0f}", "fill_us")),
            ],
        ),
    ]


def _memory(figures: Figures, _: Figures) -> float:
    return figure(figures, "memory_mb")


def _above_baseline(key: str) -> Callable[[Figures, Figures], float]:
    return lambda figures, _: figure(figures, key) / figure(figures, "fresh_store_ms")


def _cpu_above_baseline(figures: Figures, _: Figures) -> float:
    return figure(figures, "fresh_view_cpu_ms") / figure(figures, "fresh_store_cpu_ms")


def _ms(name: str) -> Callable[[Figures], str]:
    return text_of("{:.1f} ms", f"{name}_ms")


def _percent(key: str) -> Callable[[Figures], str]:
    return text_of("{:.0f} %", key, scale=100)


def _local_excess(figures: Figures, _: Figures) -> float:
    return figure(figures, "append_excess") * figure(figures, "local")


def _share(key: str, least: str) -> Callable[[Figures, Figures], float]:
    """Return a share of the baseline divided by the store's minimal share; NaN for a store without one."""
    return lambda figures, _: figure(figures, key) / figure(figures, least)


def _not_smallest(key: str) -> Callable[[Figures, Figures], float]:
    def value(figures: Figures, smallest: Figures) -> float:
        return math.nan if figures is smallest else against_smallest(key)(figures, smallest)

    return value
