"""The processes in which plans are searched and placed, and the line to each. Shell."""
