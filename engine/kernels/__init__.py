"""Hot operations. Each file has the mathematics, a reference in plain PyTorch, and public functions that choose between them.

`engine/dispatch/` makes the choice and gives its reason; docs/kernels.md lists the kernels and what they compile to.
"""
