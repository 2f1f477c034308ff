"""The audit: published formulas as claims, each proven or not against what symsim derives."""
