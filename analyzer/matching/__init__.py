"""Matching across ranks: operations of one group and sequence number, laid side by side."""
