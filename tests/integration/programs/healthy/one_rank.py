"""All healthy programs that need one rank, one after the other in this process."""

import accumulation
import blocks
import dropout
import evaluation
import gan
import layers
import lora
import moe
import optimizers
import pylayer
import sequential
import shapes
import tied_frozen
import variable_length
from job import main

main(
    blocks, sequential, dropout, accumulation, tied_frozen, lora, variable_length, moe, gan, evaluation, pylayer,
    shapes, layers, optimizers,
)  # fmt: skip
