# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Kernels booted in QEMU: where they are kept, how they boot, what is counted in them."""
