"""What the store knows, asked by the command line, the pages and their API alike."""
