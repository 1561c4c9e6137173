"""What the clients' scripts share."""

import sys


def check(name, condition, shown=""):
    """Prints a line for what holds; ends the script where it does not."""
    if not condition:
        sys.exit(f"failed: {name}: {shown}")
    print("ok:", name)
