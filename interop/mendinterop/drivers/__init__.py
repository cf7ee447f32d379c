"""Drivers in Python, one module per client. Each is a program: `python -m mendinterop.drivers.NAME TASK`."""
