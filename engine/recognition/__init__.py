"""Small networks that look at a result or an input: which way a cloud is up, and what a picture shows."""
