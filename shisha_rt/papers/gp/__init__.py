"""The GP paper: one layer over several places, by geometric programs and by their rivals. Pure."""
