"""The mapped record file between the probe, which writes, and the daemon, which reads (docs/record.md)."""
