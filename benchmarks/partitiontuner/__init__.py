"""The PartitionTuner paper's networks on its board, a CPU and an NPU: its tables and figures, repeated.

The board is a model, the descriptions `a53` and `evta`; what the paper prints of it is in `published`.
"""
