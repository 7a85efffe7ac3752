"""The GP paper: layers split over several devices, by geometric programs and by their rivals. Pure."""
