"""SimuMax v1.2 (git 4dcaae5)."""
