"""The config keys of the modules that are replaced, and of hosts' configs."""

from typing import Any

# With their defaults where they have one.
REPLACED: dict[str, Any] = {
    "max_tokens": 200_000,
    "compact_threshold": 0.92,
    "target_usage": 0.50,
    "protected_recent": 0.30,
    "protected_tool_results": 5,
    "truncate_chars": 250,
    "truncate_boundary": 0.50,
    "auto_compact": True,
    "output_reserve_fraction": 1.0,
    "compaction_notice_enabled": True,
    "compaction_notice_token_reserve": 800,
    "compaction_notice_verbosity": "normal",
    "compaction_notice_min_level": 1,
    "token_meter": "estimate",
    "max_tool_result_bytes": 131_072,
    "transcript_path": "~/x.jsonl",
    "memory_files": ["a.md"],
    "compaction_strategy": "summary",
    "summary_trigger": 0.8,
    "summarization_model": "gpt",
    "summarization_prompt_path": "p.md",
    "summarization_timeout_s": 30,
    "storage_path": "~/store",
    "auto_save": True,
    "clear_at_least": 10_000,
    "max_messages": 100,  # in the README of context-simple; its code never read it
}
