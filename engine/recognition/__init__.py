"""Small networks that recognise which way a cloud is up and what a picture shows."""
