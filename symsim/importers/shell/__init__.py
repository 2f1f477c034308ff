"""Launch scripts and argument lists, read word by word; nothing of them is run."""
