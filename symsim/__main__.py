"""`python -m symsim` is the command line."""

from symsim.cli import main

main()
