"""Who may talk to the collector, and what its answers allow a browser to do."""
