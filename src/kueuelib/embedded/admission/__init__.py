"""The steps between the arrival of an object and its storage: defaults, plug-ins, webhooks,
rules.
"""
