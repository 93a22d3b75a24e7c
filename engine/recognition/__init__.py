"""Small networks that look at the points of a shape: which way is up, what it is, and how well a mesh fits it."""
