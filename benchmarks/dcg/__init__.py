"""The tables and figures of the DCG papers, repeated: `python -m benchmarks dcg`.

Nothing here has run on a device. The papers' board is a model, its device descriptions; the networks are ours, with
the papers' operators. What is measured is how long the algorithms take, on the machine that runs this.
"""
