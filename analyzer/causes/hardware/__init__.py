"""Devices and fabrics that do not do what they should."""
