"""Code shared by several methods: acceptance rules, windows, trees, wavefronts, scales."""
