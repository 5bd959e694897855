#!/bin/sh
# What only a GPU can show (bench/device.py): in the environment that is active, with the paddlepaddle-gpu that is in it.
# Installs nothing. At most ten minutes; exit code 3 on a machine without a GPU.
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
PYTHONPATH="$here/..${PYTHONPATH:+:$PYTHONPATH}"
export PYTHONPATH
exec python3 "$here/device.py" "$@"
