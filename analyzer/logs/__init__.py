"""Texts that lie beside dumps, or instead of them: of ranks, launchers and kernels."""
