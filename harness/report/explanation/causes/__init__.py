"""Texts of causes for people, a file for each kind of them."""
