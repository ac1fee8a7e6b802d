"""The store contract by claim groups, one file a group; `store_contract` joins them into classes to inherit."""
