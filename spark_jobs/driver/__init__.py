"""The driver: claims a pipeline, runs its batches, watches, drains and ends."""
