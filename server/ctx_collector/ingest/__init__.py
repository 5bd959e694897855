"""From bytes on the wire to rows that are committed.

Does: limits, inflating, decoding, answering as OTLP/HTTP asks. Must not: know what a finding means; touch a database.
"""
