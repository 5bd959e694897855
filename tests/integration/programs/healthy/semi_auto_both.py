"""Both healthy programs in semi-auto parallel, one after the other in these processes."""

import semi_auto
import semi_auto_2d
from job import main

main(semi_auto, semi_auto_2d)
