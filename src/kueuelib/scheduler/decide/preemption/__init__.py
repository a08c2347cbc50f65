"""Finds the workloads that must release quota so that another one fits (KEP-83, spec/scheduling
6).
"""
