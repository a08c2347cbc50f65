"""One operator, written with kueuelib, kopf and controller-runtime, under the same load."""
