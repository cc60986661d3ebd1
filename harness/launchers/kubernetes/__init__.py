"""Jobs whose nodes are pods, made for them and removed with them."""
