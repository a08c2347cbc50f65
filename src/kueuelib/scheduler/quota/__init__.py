"""How much there is, and who holds it: trees of cohorts (KEP-79), the cache, its frozen parts."""
