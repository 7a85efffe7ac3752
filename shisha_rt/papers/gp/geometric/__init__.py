"""The geometric programs of the GP paper: condensed, tightened, rounded, and what makes one infeasible. Pure."""
