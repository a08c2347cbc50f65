"""Which kinds there are: built-in ones, and those that CustomResourceDefinitions add."""
