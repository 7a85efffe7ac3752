"""The tables and figures of the DCG papers, repeated: `python -m benchmarks dcg`.

Nothing here has run on a device. The papers' board is modelled by device descriptions; the networks are ours, with the
papers' operators. The descriptions were made from Figures 2(b) and 8 and fitted to Figures 9 and 11; tables and figures
state this where it matters. Only the algorithms' own times are measured, on the machine that runs this.
"""
