"""`python -m ctx_tracer.cli` is `ctx-tracer`."""

from ctx_tracer.cli import main

main()
