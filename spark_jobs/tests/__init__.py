"""Unit tests of the driver's and the tasks' pure parts."""
