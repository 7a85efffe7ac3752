"""The PartitionTuner paper's networks on its board, a CPU and an NPU: `python -m benchmarks partitiontuner_fit`.

The board is a model, the descriptions `a53` and `evta`; what the paper prints of it is in `published`.
"""
