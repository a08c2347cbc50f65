"""Who has to give quota back so that a workload fits (KEP-83, spec/scheduling 6)."""
