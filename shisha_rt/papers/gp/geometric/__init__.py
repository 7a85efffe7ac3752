"""The geometric programs of the GP paper: condensation, tightening, rounding, and causes of infeasibility. Pure."""
