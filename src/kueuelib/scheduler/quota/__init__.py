"""Who owns, lends and borrows how much in a tree of cohorts (KEP-79)."""
