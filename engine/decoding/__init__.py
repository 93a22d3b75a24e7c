"""What several methods share: acceptance rules, windows, trees, wavefronts, scales."""
