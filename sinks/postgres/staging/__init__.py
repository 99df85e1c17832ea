"""Where tasks put rows before anything is decided, and which rows are refused."""
