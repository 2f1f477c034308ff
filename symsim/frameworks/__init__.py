"""What a framework runs for a declared operation, and what it keeps: TransformerEngine and PyTorch eager."""
