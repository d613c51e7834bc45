# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The only room that talks to the kernel. It imports nothing of the other rooms but the error class."""
