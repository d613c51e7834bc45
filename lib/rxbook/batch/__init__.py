# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Many runs from one file: what it lists, and how it is worked off, here or on other machines."""
