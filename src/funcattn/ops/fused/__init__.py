"""Passes over points for GPUs: scores, softmax and sums in one kernel, no basis in memory.

    scored.py       what kernels are given and asked for
    kernels.py      three Triton programs
    by_triton.py    how they are started; blocks.py: their sizes
    passes.py       the passes of functional attention, by such kernels

They are tested in Triton's interpreter and compiled for GPUs that were not there to measure on.
"""
