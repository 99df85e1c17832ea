"""Runs the cases of a pipeline's check file: given records in, rows and fates out.

A case is a slice, as ``tallyweir notebook`` captures one, but with the records of the
file. It is staged, voted for and published by the code of a driver, into databases that
are thrown away.
"""
