"""The benchmarks themselves are not run in the tests; that they still fit the product is."""
