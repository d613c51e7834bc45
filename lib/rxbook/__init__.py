# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""rxbook: measure the kernel's receive path and print the tables of a patch mail."""

__version__ = "0.1.0"


class RxbookError(Exception):
    """What a user can put right: says what is wrong, with what value, and what to do."""

    def _render_traceback_(self) -> list[str]:
        """IPython's way to show an exception: the words alone, as a traceback would say nothing more."""
        return [f"rxbook: {self}"]
