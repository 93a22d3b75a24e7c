"""The verification of a pass: one request, one verdict, and the implementations between which `choice` chooses."""
