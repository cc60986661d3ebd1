"""Cases as single files, and Cases without what is nobody else's business."""
