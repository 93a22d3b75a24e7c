"""Networks and what runs them: transformer, running sequence, picture tokenizer, mesh decoder, weights on disk."""
