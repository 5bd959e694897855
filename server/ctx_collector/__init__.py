"""The collector: takes spans over OTLP, keeps them, turns findings into alerts, and serves the API and the page."""
