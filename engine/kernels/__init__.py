"""Hot operations. Each file has the mathematics, a reference in plain PyTorch, and public functions that choose what works here."""
