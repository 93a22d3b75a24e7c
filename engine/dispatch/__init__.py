"""Which implementation of an operation runs here: Triton, compiled C or plain PyTorch; and Triton's language where it is installed."""
