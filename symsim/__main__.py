"""`python -m symsim` is the command line."""

from symsim.api.cli import main

main()
