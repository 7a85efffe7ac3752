"""Tables, CSV files and figures, each with the machine that it was made on."""
