"""What proves and builds the product: benchmarks, chaos, demo, images, parts lists."""
