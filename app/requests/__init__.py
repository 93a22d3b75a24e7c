"""What any client may ask, checked once: the tabs, the images API, the endpoints, batch and the commands stand on it."""
