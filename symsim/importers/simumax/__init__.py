"""SimuMax."""
