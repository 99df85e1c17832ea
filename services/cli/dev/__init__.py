"""Commands that measure, break, show, build and test Tallyweir itself."""
