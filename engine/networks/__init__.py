"""Networks and how they run: transformer, running sequence, picture tokenizer, mesh decoder, weights on disk."""
