"""Plans: the best strategies of all that a framework can run on so many ranks, with what was looked at, and what would gain more."""
