"""What is to run where: plans as immutable values, and the checker that every plan passes. Pure."""
