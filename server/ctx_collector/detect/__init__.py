"""From committed rows to what is known of a run: ranks, regions, cells, verdict, sentence.

Does: everything after the commit, from a stored watermark, exactly once. Must not: contain SQL or speak HTTP.
"""
