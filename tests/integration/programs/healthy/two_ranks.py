"""All healthy programs that need two ranks and not fleet, one after the other in these processes."""

import data_parallel
import semi_auto
import semi_auto_2d
from job import main

main(data_parallel, semi_auto, semi_auto_2d)
