"""Where programs run: one object for each kind of device, which lowering asks for everything that differs.

Knows what each target is made of. Must not know graphs.
"""
