"""The served kinds: built-in ones, and those of CustomResourceDefinitions."""
