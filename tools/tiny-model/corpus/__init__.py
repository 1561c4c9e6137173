"""The text that hanzo-tiny is trained on, all of it produced by the grammar in this package."""
