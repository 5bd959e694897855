"""Prints each signal it gets, until `QUIT` is one of them or its standard input's owner loses patience."""

import os
import signal
import time

seen = []


def note(number, _frame):
    name = signal.Signals(number).name
    seen.append(name)
    os.write(1, f"{name}\n".encode())  # a handler may run inside a print


for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCONT):
    signal.signal(one, note)
print("ready", flush=True)
end = time.monotonic() + 60
while "SIGUSR2" not in seen and time.monotonic() < end:
    time.sleep(0.02)
