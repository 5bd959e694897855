"""What the observations mean: pure functions from findings, exits and counters to a verdict and its words.

Used by the daemon for stderr and the report and by the collector for alerts, so that both say the same.
Imports the standard library, `ctx_tracer.model`, `ctx_tracer.rules` and the types of `ctx_tracer.record.layout` alone.
"""
