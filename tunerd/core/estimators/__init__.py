"""What models are made of: designs and trends, trees, and sealed blobs to keep them in."""
