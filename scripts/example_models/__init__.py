"""The networks behind scripts/export_models.py."""
