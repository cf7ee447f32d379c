"""One module per client that Python drives; each is run as a program of its own: `python -m mendinterop.drivers.NAME TASK`."""
