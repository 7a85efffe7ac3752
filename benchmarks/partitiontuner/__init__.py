"""The PartitionTuner paper's networks on its board, a CPU and an NPU: its tables and figures, repeated.

The board is modelled by the descriptions `a53` and `evta`; `published` has the paper's figures.
"""
