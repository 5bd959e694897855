"""ctx-tracer: watches what activation recompute saves and what its replay gets back, in every rank of a training job.

Importing this package imports neither Paddle nor OpenTelemetry.
"""

__version__ = "0.1.0"
