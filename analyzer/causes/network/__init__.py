"""Connections that carry nothing or little, and meeting points that nobody reaches."""
