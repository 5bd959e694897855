"""A pre-flight: one block, on CPU, without recompute and in both of its modes; which of them is safe, and why.

Each mode runs in a child (`child`), which finds the block (`target`) and its inputs (`inputs`), lets the probe watch,
and leaves values and a record behind; the parent (`run`) starts the children and reads what they left, `compare` and
`judge` say what it means. The rules are the probe's: nothing here detects anything but different values.
"""
