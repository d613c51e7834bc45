# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What the notebook explore shows: runs as tidy tables, filters, pictures, flame graphs of one cell or two."""

from rxbook.explore.view import View, start

__all__ = ["View", "start"]
