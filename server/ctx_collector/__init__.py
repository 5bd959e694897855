"""The collector: takes spans over OTLP, keeps them, turns findings into alerts, and serves the API and the page."""

from importlib.metadata import version

# Not from `ctx_tracer` itself: that package's face reaches the probe.
__version__ = version("ctx-tracer")
